# SPDX-License-Identifier: Apache-2.0
"""From a graph to a program that gives what the graph gives, on a CPU that stands in for the GPU."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.for_gpu import for_gpu  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.coded_weight import FLOATS, CodedWeight  # noqa: E402
from quantrt.plan.program import Program, codes_of  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.target import Target  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.tuning.slower_products import leave_float  # noqa: E402
from tests.nets import net, quantized, resnet, run_ort, samples, weights  # noqa: E402

LIBRARIES_ONLY = CudaConfig(
    exclude_tactic_sources=tuple(source for source in TACTIC_SOURCES if source != "torch"),
    builder_optimization_level=0,
)

MLP = """net (float[N,S,16] x) => (float[N,S,16] y) {
  n = LayerNormalization<axis=-1>(x, g, b)
  h = MatMul(n, w0)
  a = Gelu(h)
  o = MatMul(a, w1)
  y = Add(x, o)
}"""


def mlp() -> Model:
    shapes = {"g": (16,), "b": (16,), "w0": (16, 64), "w1": (64, 16)}
    return net(MLP, weights(shapes), opset=20)


GATED = """gated (float[N,S,16] x) => (float[N,S,16] y) {
  n = LayerNormalization<axis=-1>(x, g, b)
  gate = MatMul(n, w_gate)
  up0 = MatMul(n, w_up)
  up = Add(up0, b_up)
  bent = Sigmoid(gate)
  silu = Mul(gate, bent)
  h = Mul(silu, up)
  o = MatMul(h, w_down)
  y = Add(x, o)
}"""


def gated() -> Model:
    """SwiGLU, its two products merged."""
    shapes = {"g": (16,), "b": (16,), "w_gate": (16, 40), "w_up": (16, 40), "b_up": (40,), "w_down": (40, 16)}
    return for_gpu(net(GATED, weights(shapes), opset=20))


MODELS = pytest.mark.parametrize("model", [resnet(), mlp(), gated()], ids=["resnet", "mlp", "gated"])


def lowering(model: Model, inputs: Mapping[str, np.ndarray]) -> CudaLowering:
    return CudaLowering(model, LIBRARIES_ONLY, inputs, gpu=gpu_named("h200"), device="cpu")


def program_of(
    model: Model, inputs: Mapping[str, np.ndarray], precision: str, codes: QuantizedModel | None = None
) -> Program:
    return program_from_model(lowering(model, inputs).lower(codes, precision)[0])


def expanded(weight: CodedWeight) -> np.ndarray:
    floats = weight.codes.astype(np.float32) * weight.scale.reshape(weight.scale_shape())
    return floats.astype(FLOATS[weight.dtype])


def run(model: Model, program: Program, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        return next(iter(executor.run(inputs).values()))
    finally:
        executor.close()


@MODELS
@pytest.mark.parametrize(("precision", "floor_db"), [("fp32", 110), ("fp16", 50), ("bf16", 32)])
def test_floats_give_what_the_model_gives(model: Model, precision: str, floor_db: float):
    inputs = {"x": samples(3, 3, 16, 16) if len(model.inputs[0].shape or ()) == 4 else samples(3, 7, 16)}
    (want,) = run_ort(model.graph, inputs)
    got = run(model, program_of(model, inputs, precision), inputs)
    assert got.dtype == want.dtype
    assert sqnr_db(want, got) > floor_db


@MODELS
def test_codes_give_what_the_standard_model_of_the_same_codes_gives(model: Model):
    """In float32 beside the codes, so that nothing but the order of a sum differs from Q/DQ arithmetic."""
    inputs = {"x": samples(3, 3, 16, 16) if len(model.inputs[0].shape or ()) == 4 else samples(3, 7, 16)}
    codes = quantized(model, CUDA, inputs)
    (want,) = run_ort(write(codes), inputs, keeps_pairs=True)
    program = program_of(model, inputs, "fp32", codes)
    assert sum(row["codes"] == "int8" for row in program.notes["regions"].values()) >= 2
    assert sqnr_db(want, run(model, program, inputs)) > 55
    (exact,) = run_ort(model.graph, inputs)
    assert sqnr_db(exact, want) < 54  # the codes are what was compared, not the float model


def test_a_program_runs_at_other_shapes_than_those_it_was_timed_at():
    model, inputs = mlp(), {"x": samples(2, 5, 16)}
    program = program_of(model, inputs, "fp32")
    for shape in ((1, 1, 16), (4, 9, 16)):
        other = {"x": samples(*shape)}
        (want,) = run_ort(model.graph, other)
        assert sqnr_db(want, run(model, program, other)) > 110


def test_a_value_exists_in_the_forms_that_are_read():
    model, inputs = resnet(), {"x": samples(2, 3, 16, 16)}
    codes = quantized(model, CUDA, inputs)
    forms = choose_forms(codes.graph.graph, partition(codes.graph), codes)
    assert forms.stored["x"] == (CODES,)
    assert forms.stored["r0"] == (CODES,)  # by a convolution and as the skip branch of the sum
    assert forms.stored["r1"] == (CODES,)
    assert forms.stored["y"] == (FLOAT,)
    floats = choose_forms(model.graph.graph, partition(model.graph), None)
    assert set(floats.stored.values()) == {(FLOAT,)}


def test_a_layer_that_is_kept_float_reads_floats_and_says_why():
    # With this seed no value lies so near the middle between two codes that the order of a sum decides.
    model, inputs = resnet(), {"x": samples(2, 3, 16, 16, seed=13)}
    codes = quantized(model, CUDA, inputs)
    first = next(row.node for row in codes.placement.decisions if row.op_type == "Conv")
    kept = leave_float(codes, {first: "because"})
    decision = next(row for row in kept.placement.decisions if row.node == first)
    assert (decision.is_int8, decision.reason) == (False, "because")
    assert FLOAT in choose_forms(kept.graph.graph, partition(kept.graph), kept).stored["x"]
    program = program_of(model, inputs, "fp32", kept)
    assert not program.notes["regions"][first]["codes"]
    (want,) = run_ort(write(kept), inputs, keeps_pairs=True)
    assert sqnr_db(want, run(model, program, inputs)) > 55


def test_a_layer_that_is_kept_float_multiplies_what_its_codes_stand_for():
    model, inputs = mlp(), {"x": samples(2, 7, 16)}
    codes = quantized(model, CUDA, inputs)
    products = {row.node: "because" for row in codes.placement.decisions if row.op_type == "MatMul"}
    kept = leave_float(codes, products)
    program = program_of(model, inputs, "fp32", kept)
    rounded = {use[0]: tensor.dequantize() for use, tensor in codes.weights.items()}
    held = {key.partition("/")[0]: expanded(weight) for key, weight in program.coded.items()}
    assert held.keys() == rounded.keys() == products.keys()
    assert all(np.array_equal(held[name], rounded[name]) for name in products)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("rules", [CUDA, CUDA_FP8], ids=["int8", "fp8"])
def test_what_is_kept_float_is_held_as_codes_and_gives_the_same(rules: Target, precision: str):
    model, inputs = mlp(), {"x": samples(2, 7, 16)}
    codes = quantized(model, rules, inputs)
    products = {row.node: "because" for row in codes.placement.decisions if row.op_type == "MatMul"}
    kept = leave_float(codes, products)
    program = program_of(model, inputs, precision, kept)
    assert len(program.coded) == 2
    assert not any(row["codes"] for row in program.notes["regions"].values())
    floats = {key: expanded(weight) for key, weight in program.coded.items()}
    as_floats = replace(program, weights={**program.weights, **floats}, coded={})
    assert np.array_equal(run(model, program, inputs), run(model, as_floats, inputs))
    (want,) = run_ort(write(kept), inputs, keeps_pairs=True)
    assert sqnr_db(want, run(model, program, inputs)) > {"fp16": 50, "bf16": 32}[precision]


def test_a_value_that_its_maker_stores_as_floats_alone_is_converted_once():
    text = """net (float[N,3,8,8] x) => (float[N,4,8,8] y) {
      s = Resize<mode="nearest">(x, , scales)
      c = Conv<pads=[1,1,1,1]>(s, w0)
      d = Conv<pads=[1,1,1,1]>(s, w1)
      y = Mul(c, d)
    }"""
    arrays = weights({"w0": (4, 3, 3, 3), "w1": (4, 3, 3, 3)}) | {
        "scales": np.array([1, 1, 1, 1], np.float32)
    }
    model, inputs = net(text, arrays), {"x": samples(2, 3, 8, 8)}
    codes = quantized(model, CUDA, inputs)
    program = program_of(model, inputs, "fp32", codes)
    made = [step.region for step in program.steps if codes_of("s") in step.outputs]
    assert len(made) <= 1
    (want,) = run_ort(write(codes), inputs, keeps_pairs=True)
    assert sqnr_db(want, run(model, program, inputs)) > 55


def test_inputs_and_outputs_keep_the_models_types_and_names():
    text = """net (float[N,4] x, int64[N] rows) => (float[M,4] y, bool[N,4] z) {
      y = Gather(x, rows)
      zero = Constant<value_float=0.0>()
      z = Greater(x, zero)
    }"""
    model = net(text)
    inputs = {"x": samples(3, 4), "rows": np.array([2, 0, 1], np.int64)}
    program = program_of(model, inputs, "fp16")
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    outputs = executor.run(inputs)
    executor.close()
    assert {name: array.dtype.name for name, array in outputs.items()} == {"y": "float32", "z": "bool"}
    np.testing.assert_array_equal(outputs["z"], inputs["x"] > 0)
    np.testing.assert_allclose(outputs["y"], inputs["x"][[2, 0, 1]], rtol=1e-3)


def test_a_gate_is_one_product_that_stores_what_the_next_reads():
    model, inputs = gated(), {"x": samples(3, 7, 16)}
    codes = quantized(model, CUDA, inputs)
    program = program_of(model, inputs, "fp16", codes)
    rows = program.notes["regions"]
    products = [name for name, row in rows.items() if row["formula"] == "Gemm"]
    assert [len(rows[name]["nodes"]) for name in products] == [6, 2], "the gate, and the way back"
    gate, back = (next(step for step in program.steps if step.region == name) for name in products)
    assert gate.outputs == (codes_of("h"),) and back.inputs[0] == codes_of("h")
    assert not any(step.runner == "view" for step in program.steps)


def test_codes_that_are_moved_before_they_are_read_have_the_scale_of_their_reader():
    text = """moved (float[N,S,16] x) => (float[S,N,8] y) {
      n = LayerNormalization<axis=-1>(x, g, b)
      t = Transpose<perm=[1,0,2]>(n)
      s = Shape(t)
      f = Reshape(t, s)
      y = MatMul(f, w)
    }"""
    model = net(text, weights({"g": (16,), "b": (16,), "w": (16, 8)}), opset=17)
    inputs = {"x": samples(3, 7, 16)}
    codes = quantized(model, CUDA, inputs)
    (want,) = run_ort(write(codes), inputs, keeps_pairs=True)
    program = program_of(model, inputs, "fp32", codes)
    assert sum(row["codes"] == "int8" for row in program.notes["regions"].values()) == 1
    assert sqnr_db(want, run(model, program, inputs)) > 60


@pytest.mark.parametrize(("precision", "floor_db"), [("fp16", 50), ("bf16", 32)])
def test_tables_and_masks_in_half_precision(precision: str, floor_db: float):
    """Constants that are stored in the type of the floats around them."""
    text = """words (int64[N,S] tokens) => (float[N,2,S,8] y) {
      heads = Constant<value_ints=[0, 0, 2, 8]>()
      scale = Constant<value_float=0.35>()
      e = Gather(table, tokens)
      n = LayerNormalization<axis=-1>(e, g, b)
      r = Reshape(n, heads)
      q = Transpose<perm=[0,2,1,3]>(r)
      k = Transpose<perm=[0,2,3,1]>(r)
      s0 = MatMul(q, k)
      s1 = Mul(s0, scale)
      s2 = Add(s1, bias)
      p = Softmax<axis=-1>(s2)
      y = MatMul(p, q)
    }"""
    arrays = weights({"table": (40, 16), "g": (16,), "b": (16,), "bias": (2, 7, 7)})
    model = net(text, arrays, opset=17)
    inputs = {"tokens": np.random.default_rng(5).integers(0, 40, (3, 7))}
    (want,) = run_ort(model.graph, inputs)
    program = program_of(model, inputs, precision)
    assert {"Attention", "Rows"} <= {row["formula"] for row in program.notes["regions"].values()}
    assert sqnr_db(want, run(model, program, inputs)) > floor_db
