# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions in a quantized graph: those whose windows do not overlap read and store codes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import TACTIC_SOURCES, CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import ConvTranspose  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.forms.coded_expression import ACCUMULATOR_SCALES  # noqa: E402
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, choose_forms  # noqa: E402
from quantrt.tactics.cuda.forms.workloads import lower_region  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from tests.nets import net, quantized, reason, run_ort, samples, weights  # noqa: E402

REFERENCE_ONLY = CudaConfig(exclude_tactic_sources=TACTIC_SOURCES, builder_optimization_level=0)
INPUTS = {"x": samples(2, 6, 5, 5)}

UP = """net (float[N,6,5,5] x) => (float[N,4,A,B] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  r = Relu(c)
  u = ConvTranspose<strides=[2,2]ATTRIBUTES>(r, w1, b1)
  s = Relu(u)
  y = Conv<pads=[1,1,1,1]>(s, w2)
}"""


def model_of(kernel: int, attributes: str = "") -> Model:
    shapes = {"w0": (8, 6, 3, 3), "w1": (8, 6, kernel, kernel), "b1": (6,), "w2": (4, 6, 3, 3)}
    return net(UP.replace("ATTRIBUTES", attributes), weights(shapes))


def test_codes_in_and_codes_out():
    codes = quantized(model_of(2), CUDA, INPUTS)
    regions = partition(codes.graph)
    forms = choose_forms(codes.graph.graph, regions, codes)
    (region,) = (region for region in regions.regions if isinstance(region.formula, ConvTranspose))
    lowered = lower_region(region, codes.graph.graph, forms, codes, "float16")
    assert lowered.inputs == (("r", CODES),)
    assert lowered.outputs == (("s", CODES),)
    assert lowered.weight.dtype == np.int8
    assert lowered.constants[ACCUMULATOR_SCALES[0]].shape == (6,)
    (want,) = run_ort(write(codes), INPUTS)
    lowering = CudaLowering(codes.model, REFERENCE_ONLY, INPUTS, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(codes, "fp32")[0])
    assert "nodes" not in {step.runner for step in program.steps}
    executor = CudaExecutor(program, codes.model.inputs, codes.model.outputs, device="cpu")
    (got,) = executor.run(INPUTS).values()
    executor.close()
    assert sqnr_db(want, got) > 55


def test_overlapping_windows_stay_float():
    codes = quantized(model_of(4, ", pads=[1,1,1,1]"), CUDA, INPUTS)
    (node,) = (node for node in codes.graph.graph if node.op_type == "ConvTranspose")
    assert reason(codes.placement, node.name) == "its windows overlap, or it has groups: no 8-bit kernel"
    regions = partition(codes.graph)
    forms = choose_forms(codes.graph.graph, regions, codes)
    (region,) = (region for region in regions.regions if isinstance(region.formula, ConvTranspose))
    lowered = lower_region(region, codes.graph.graph, forms, codes, "float16")
    assert lowered.inputs == (("r", FLOAT),)
    assert lowered.outputs == (("s", CODES),)
