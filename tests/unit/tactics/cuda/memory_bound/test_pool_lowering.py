# SPDX-License-Identifier: Apache-2.0
"""Pools in a quantized graph: what they read, what they store, and that the codes are those of Q/DQ."""

from collections.abc import Mapping

import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import Pool  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.forms.workloads import Lowered, lower_region  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.tuning.slower_products import leave_float  # noqa: E402
from tests.nets import net, quantized, run_ort, samples, weights  # noqa: E402

REFERENCE_ONLY = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
INPUTS = {"x": samples(2, 3, 12, 12)}

MAXIMA = """net (float[N,3,12,12] x) => (float[N,4,A,B] y, float[N,4,C,D] z) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(c)
  p = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r)
  y = Conv(p, w1)
  z = Conv(p, w2)
}"""

BRANCHES = """net (float[N,3,12,12] x) => (float[N,4,A,B] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(c)
  a = Conv(r, w1)
  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(r)
  b = Conv(p, w2)
  y = Add(a, b)
}"""

HEAD = """net (float[N,3,12,12] x) => (float[N,6] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(c)
  p = GlobalAveragePool(r)
  f = Flatten(p)
  y = Gemm(f, w3)
}"""


def model_of(text: str) -> Model:
    shapes = {"w0": (8, 3, 3, 3), "w1": (4, 8, 1, 1), "w2": (4, 8, 1, 1), "w3": (8, 6)}
    return net(text, weights({name: shape for name, shape in shapes.items() if name in text}))


def pool_of(codes: QuantizedModel) -> tuple[Lowered, Mapping[str, tuple[str, ...]]]:
    """The one pool, lowered, and the forms that all values are stored in."""
    regions = partition(codes.graph)
    forms = choose_forms(codes.graph.graph, regions, codes)
    (region,) = (region for region in regions.regions if isinstance(region.formula, Pool))
    return lower_region(region, codes.graph.graph, forms, codes, "float32"), forms.stored


def program_of(codes: QuantizedModel) -> Program:
    lowering = CudaLowering(codes.model, REFERENCE_ONLY, INPUTS, gpu=gpu_named("h200"), device="cpu")
    return program_from_model(lowering.lower(codes, "fp32")[0])


def gives_what_qdq_gives(codes: QuantizedModel) -> None:
    executor = CudaExecutor(program_of(codes), codes.model.inputs, codes.model.outputs, device="cpu")
    got = executor.run(INPUTS)
    executor.close()
    for want, array in zip(run_ort(write(codes), INPUTS, keeps_pairs=True), got.values(), strict=True):
        assert sqnr_db(want, array) > 55


def test_a_maximum_of_codes_is_stored_as_it_is():
    codes = quantized(model_of(MAXIMA), CUDA, INPUTS)
    lowered, stored = pool_of(codes)
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("p", CODES),)
    assert lowered.formula.epilogue.is_identity
    assert stored["r"] == (CODES,)
    gives_what_qdq_gives(codes)


def test_floats_of_a_maximum_of_codes_are_stored_beside_them():
    codes = quantized(model_of(MAXIMA), CUDA, INPUTS)
    last = codes.graph.graph.outputs[1].producer()
    kept = leave_float(codes, {last.name: "for a test"})
    lowered, stored = pool_of(kept)
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("p", FLOAT), ("p", CODES))
    assert stored["r"] == (CODES,)
    epilogue = lowered.formula.epilogue
    assert epilogue.outputs[1] == 0
    assert [instruction.op for instruction in epilogue.instructions] == ["sub", "mul"]
    gives_what_qdq_gives(kept)


def test_a_maximum_that_floats_alone_are_read_of_reads_floats():
    codes = quantized(model_of(MAXIMA), CUDA, INPUTS)
    kept = leave_float(codes, {value.producer().name: "for a test" for value in codes.graph.graph.outputs})
    lowered, _ = pool_of(kept)
    assert lowered.inputs == (("r", FLOAT),)
    assert lowered.outputs == (("p", FLOAT),)


def test_a_mean_reads_the_codes_that_are_there_for_others():
    codes = quantized(model_of(BRANCHES), CUDA, INPUTS)
    lowered, stored = pool_of(codes)
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("p", CODES),)
    assert [x.op for x in lowered.formula.epilogue.instructions] == ["sub", "mul", "quantize_at"]
    assert stored["r"] == (CODES,)
    gives_what_qdq_gives(codes)


def test_a_mean_of_floats_is_stored_as_codes():
    gated = HEAD.replace(
        "f = Flatten(p)", "g = Sigmoid(r) m = Mul(r, g) n = ReduceMax(m) q = Add(p, n) f = Flatten(q)"
    )
    codes = quantized(model_of(gated), CUDA, INPUTS)
    lowered, stored = pool_of(codes)
    assert lowered.inputs == (("r", FLOAT),)
    assert stored["r"] == (FLOAT,)
    gives_what_qdq_gives(codes)


def test_a_mean_that_alone_reads_a_convolution_reads_codes_and_is_stored_as_codes():
    codes = quantized(model_of(HEAD), CUDA, INPUTS)
    lowered, stored = pool_of(codes)
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("p", CODES),)
    assert stored["r"] == (CODES,)
    assert not any(step.region.startswith("convert p") for step in program_of(codes).steps)
    gives_what_qdq_gives(codes)
