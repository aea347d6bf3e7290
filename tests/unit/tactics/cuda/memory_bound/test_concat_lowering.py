# SPDX-License-Identifier: Apache-2.0
"""Concatenations in a quantized graph: on one grid they are of codes, and the codes are those of Q/DQ."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.explicit.read import read  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import Concat  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.tuning.slower_products import leave_float  # noqa: E402
from tests.nets import net, quantized, run_ort, samples, weights  # noqa: E402

REFERENCE_ONLY = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
INPUTS = {"x": samples(2, 3, 12, 12)}

BRANCHES = """net (float[N,3,12,12] x) => (float[N,4,12,12] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(a)
  b = Conv<pads=[1,1,1,1]>(r, w1)
  c = Concat<axis=1>(r, b, b)
  y = Conv(c, w2)
}"""

PYRAMID = """net (float[N,3,12,12] x) => (float[N,4,12,12] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0)
  b = Conv<pads=[1,1,1,1]>(x, w0)
  p = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(a)
  q = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(p)
  c = Concat<axis=1>(b, p, q)
  y = Conv(c, w2)
}"""

HALVES = """net (float[N,3,12,12] x) => (float[N,4,12,12] y) {
  a = Conv<pads=[1,1,1,1]>(x, w3)
  l, r = Split<axis=1, num_outputs=2>(a)
  b = Conv<pads=[1,1,1,1]>(r, w1)
  s = Add(r, b)
  c = Concat<axis=1>(l, r, s)
  y = Conv(c, w2)
}"""

BOTH = """net (float[N,3,12,12] x) => (float[N,4,12,12] y, float[N,8,12,12] z) {
  a = Conv<pads=[1,1,1,1]>(x, w0)
  b = Conv<pads=[1,1,1,1]>(a, w1)
  z = Concat<axis=1>(a, b)
  y = Conv(z, w4)
}"""

SHAPES = {"w0": (4, 3, 3, 3), "w1": (4, 4, 3, 3), "w2": (4, 12, 1, 1), "w3": (8, 3, 3, 3), "w4": (4, 8, 1, 1)}


def model_of(text: str) -> Model:
    return net(
        text, weights({name: shape for name, shape in SHAPES.items() if f" {name})" in text}), opset=18
    )


def program_of(codes: QuantizedModel) -> Program:
    lowering = CudaLowering(codes.model, REFERENCE_ONLY, INPUTS, gpu=gpu_named("h200"), device="cpu")
    return program_from_model(lowering.lower(codes, "fp32")[0])


def joined(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the one concatenation reads and makes."""
    (step,) = (step for step in program.steps if step.options.get("formula", {}).get("type") == "Concat")
    return step.inputs, step.outputs


def gives_what_qdq_gives(codes: QuantizedModel, program: Program) -> None:
    executor = CudaExecutor(program, codes.model.inputs, codes.model.outputs, device="cpu")
    got = executor.run(INPUTS)
    executor.close()
    for want, array in zip(run_ort(write(codes), INPUTS), got.values(), strict=True):
        assert sqnr_db(want, array) > 55


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        (BRANCHES, ("r#int8", "b#int8", "b#int8")),
        (PYRAMID, ("b#int8", "p#int8", "q#int8")),
        (HALVES, ("l#int8", "r#int8", "s#int8")),
    ],
)
def test_what_an_int8_layer_reads_alone_is_joined_as_codes(text: str, reads: tuple[str, ...]):
    codes = quantized(model_of(text), CUDA, INPUTS, method="minmax", bias_correction=False)
    program = program_of(codes)
    assert joined(program) == (reads, ("c#int8",))
    floats = {name for step in program.steps for name in step.outputs if not name.endswith("#int8")}
    assert floats <= {"y"}, "nothing is stored as floats on the way"
    gives_what_qdq_gives(codes, program)


def test_a_pool_before_a_concatenation_shares_its_grid():
    codes = quantized(model_of(PYRAMID), CUDA, INPUTS, method="minmax")
    assert {"a", "b"} <= codes.activations.keys()
    assert codes.activations["a"].scale == codes.activations["b"].scale


def test_one_that_the_caller_gets_too_is_of_floats():
    codes = quantized(model_of(BOTH), CUDA, INPUTS, method="minmax", bias_correction=False)
    program = program_of(codes)
    assert joined(program) == (("a", "b"), ("z",))
    gives_what_qdq_gives(codes, program)


def test_one_whose_reader_stays_float_is_of_floats():
    codes = quantized(model_of(BRANCHES), CUDA, INPUTS, method="minmax", bias_correction=False)
    (last,) = (node.name for node in codes.graph.graph if node.outputs[0].name == "y")
    float_last = leave_float(codes, {str(last): "slower"})
    program = program_of(float_last)
    assert joined(program)[1] == ("c",)
    gives_what_qdq_gives(codes, program_of(codes))


EXPLICIT = """net (float[2,3,12,12] x) => (float[2,4,12,12] y) {
  r = Relu(x)
  s = Sigmoid(x)
  c = Concat<axis=1>(r, s)
  q = QuantizeLinear(c, scale)
  d = DequantizeLinear(q, scale)
  v = DequantizeLinear(w, ws)
  y = Conv(d, v)
}"""


def test_a_pair_behind_one_in_the_model_stays_there():
    arrays = {
        "w": np.random.default_rng(2).integers(-127, 128, (4, 6, 1, 1), np.int8),
        "scale": np.float32(0.02),
        "ws": np.float32(0.01),
    }
    codes = read(net(EXPLICIT, arrays))
    program = program_of(codes)
    assert joined(program) == (("r", "s"), ("c_unsaturated",))
    assert [row.is_int8 for row in codes.placement.decisions if row.op_type == "Conv"] == [True]
    executor = CudaExecutor(program, codes.model.inputs, codes.model.outputs, device="cpu")
    got = executor.run(INPUTS)["y"]
    executor.close()
    (want,) = run_ort(codes.model.graph, INPUTS)
    assert sqnr_db(want, got) > 100


def test_without_codes_it_is_a_region_of_its_own():
    graph = model_of(BRANCHES).graph
    regions = partition(graph)
    (region,) = (region for region in regions.regions if isinstance(region.formula, Concat))
    assert region.inputs == ("r", "b")
    assert len(region.formula.edges) == 3
    forms = choose_forms(graph.graph, regions, None)
    assert {form for _, form in forms.reads[region.name]} == {FLOAT}
    assert CODES not in forms.stored["c"]


def test_integers_and_constants_are_no_concern_of_it():
    text = """net (float[N,4] x) => (float[N,6] y, int64[N,8] z) {
      y = Concat<axis=1>(x, w)
      i = Cast<to=7>(x)
      z = Concat<axis=1>(i, i)
    }"""
    graph = net(text.replace("[N,", "[2,"), {"w": samples(2, 2)}).graph
    assert not [x for x in partition(graph).regions if isinstance(x.formula, Concat)]
