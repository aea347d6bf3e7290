# SPDX-License-Identifier: Apache-2.0
"""Resized images in a quantized graph: nearest pixels are moved as codes, interpolation is of floats."""

import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.quantized_model import QuantizedModel  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import Resize  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.forms.workloads import Lowered, lower_region  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from tests.nets import net, quantized, run_ort, samples, weights  # noqa: E402

REFERENCE_ONLY = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
INPUTS = {"x": samples(2, 6, 5, 5)}

UP = """net (float[N,6,5,5] x) => (float[N,4,A,B] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(c)
  scales = Constant<value_floats=[1.0,1.0,2.0,2.0]>()
  u = Resize<ATTRIBUTES>(r, , scales)
  y = Conv<pads=[1,1,1,1]>(u, w1)
}"""

NEAREST = 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
LINEAR = 'mode="linear"'


def model_of(attributes: str) -> Model:
    shapes = {"w0": (8, 6, 3, 3), "w1": (4, 8, 3, 3)}
    return net(UP.replace("ATTRIBUTES", attributes), weights(shapes))


def resize_of(codes: QuantizedModel) -> Lowered:
    regions = partition(codes.graph)
    forms = choose_forms(codes.graph.graph, regions, codes)
    (region,) = (region for region in regions.regions if isinstance(region.formula, Resize))
    return lower_region(region, codes.graph.graph, forms, codes, "float16")


def gives_what_qdq_gives(codes: QuantizedModel) -> None:
    lowering = CudaLowering(codes.model, REFERENCE_ONLY, INPUTS, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(codes, "fp32")[0])
    assert "nodes" not in {step.runner for step in program.steps}
    executor = CudaExecutor(program, codes.model.inputs, codes.model.outputs, device="cpu")
    (got,) = executor.run(INPUTS).values()
    executor.close()
    (want,) = run_ort(write(codes), INPUTS)
    assert sqnr_db(want, got) > 55


def test_codes_are_moved_as_they_are():
    codes = quantized(model_of(NEAREST), CUDA, INPUTS)
    lowered = resize_of(codes)
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("u", CODES),)
    assert lowered.formula.epilogue.is_identity
    gives_what_qdq_gives(codes)


def test_floats_are_interpolated_and_stored_as_codes():
    codes = quantized(model_of(LINEAR), CUDA, INPUTS)
    lowered = resize_of(codes)
    assert lowered.inputs == (("r", FLOAT),)
    assert lowered.outputs == (("u", CODES),)
    assert [x.op for x in lowered.formula.epilogue.instructions] == ["quantize"]
    gives_what_qdq_gives(codes)
