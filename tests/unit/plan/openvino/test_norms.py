# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx_ir as ir
import openvino
import pytest

from quantrt.ir.session import float_session
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.openvino.norms import part_norms
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import edited, leaves_alone, net, quantized, samples, weights

SHAPES = {"w0": (64, 64), "w1": (64, 64), "w2": (64, 64), "gamma": (64,), "beta": (64,)}
INPUTS = {"x": samples(8, 16, 64)}


def block(reader: str = "y = Add(p, n)", output: str = "y") -> Model:
    """A product, a sum and its normalization `n`, which two products and `reader` read."""
    text = f"""net (float[N,16,64] x) => (float[N,16,64] {output}) {{
      h = MatMul(x, w0)
      s = Add(h, x)
      n = LayerNormalization(s, gamma, beta)
      q = MatMul(n, w1)
      k = MatMul(n, w2)
      p = Mul(q, k)
      {reader}
    }}"""
    return net(text, weights(SHAPES))


def qdq(model: Model) -> ir.Model:
    return write(quantized(model, OPENVINO, INPUTS))


def norms(graph: ir.Model) -> list[ir.Node]:
    return [node for node in graph.graph if node.op_type == "LayerNormalization"]


@pytest.mark.parametrize("reader", ["y = Add(p, n)", "y = Sub(n, p)", "y = Mul(p, n)"])
def test_codes_get_a_normalization_of_their_own_and_nothing_else_changes(reader: str):
    graph = qdq(block(reader))
    parted = edited(part_norms, graph)
    assert (len(norms(graph)), len(norms(parted))) == (1, 2)
    readers = [{user.op_type for user, _ in node.outputs[0].uses()} for node in norms(parted)]
    assert readers == [{reader[4:7]}, {"QuantizeLinear"}]
    # Unoptimized: ONNX Runtime fuses the sum before a normalization only where one reads it.
    got, wanted = (float_session(each, optimize=False).run(None, INPUTS)[0] for each in (parted, graph))
    np.testing.assert_array_equal(got, wanted)


def test_openvino_writes_codes_and_floats_in_different_kernels():
    compiled = compiled_kernels(qdq(block()))
    assert any("n_quantize" in layers for layers, _ in compiled)
    assert not [kernel for kernel in compiled if "," in kernel[1]]


def compiled_kernels(graph: ir.Model) -> list[tuple[str, str]]:
    """ONNX layers and output types of every kernel."""
    lowered = lower_to_openvino(graph)
    core = openvino.Core()
    model = core.read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    model.reshape([8, 16, 64])
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    facts = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    return [(info["originalLayersNames"].astype(str), info["outputPrecisions"].astype(str)) for info in facts]


@pytest.mark.parametrize(
    "model",
    [
        block("y = Identity(p)"),
        block("e = Softmax(n) y = Add(p, e)"),
        block("y = Identity(n)"),
        block(output="n"),
    ],
    ids=["codes only", "a reader with a kernel of its own", "an output of the model", "an output itself"],
)
def test_a_normalization_stays_whole_where_parting_saves_nothing(model: Model):
    graph = qdq(model)
    assert leaves_alone(part_norms, graph)


def test_a_float_model_stays_as_it_is():
    graph = block().graph
    assert leaves_alone(part_norms, graph)


def test_what_cannot_be_halved_exactly_stays_whole():
    arrays = weights(SHAPES)
    arrays["beta"][3] = np.finfo(np.float32).smallest_subnormal
    model = block()
    model.graph.graph.initializers["beta"].const_value = ir.tensor(arrays["beta"], name="beta")
    graph = qdq(model)
    assert leaves_alone(part_norms, graph)


@pytest.mark.parametrize(("float_precision", "count"), [("fp32", 2), ("bf16", 1)])
def test_beside_bf16_one_normalization_is_left(float_precision: str, count: int):
    lowered = lower_to_openvino(qdq(block()), float_precision)
    model = openvino.Core().read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    assert sum(node.get_type_name() == "MVN" for node in model.get_ordered_ops()) == count
