# SPDX-License-Identifier: Apache-2.0
"""Real models that were quantized by others, read and run as programs of the CUDA engine on a CPU.

Against ONNX Runtime without its rewrites. Sums of codes are exact in the program and rounded there, so that a
value near the middle of two codes may fall to either, and what follows differs: such floors are some 3 dB
under what was measured.
"""

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from quantrt.build import build  # noqa: E402
from quantrt.config import LIBRARIES, BenchConfig, BuildConfig, CudaConfig, DeviceConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.load import load_model  # noqa: E402
from quantrt.quantize.explicit.grids import grid_of  # noqa: E402
from quantrt.quantize.explicit.read import read  # noqa: E402
from quantrt.quantize.qdq.write import write  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from tests.program_codes import compare_program  # noqa: E402

BATCH = 2
EQUAL_DB = 100.0
"""All codes agree."""

NEAR_DB = 20.0

BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)

WIDE_WEIGHTS = "its weight has codes beyond int8 once its zero point is taken off"


@dataclass(frozen=True)
class Case:
    """What is known of one file.

    Attributes:
        int8, total: products that read codes, and all.
        reasons: why the others do not.
        written_db: floor of the annotated graph, written again and run by ONNX Runtime.
        program_db: floor of the program.
    """

    name: str
    int8: int
    total: int
    reasons: frozenset[str] = frozenset()
    written_db: float = EQUAL_DB
    program_db: float = EQUAL_DB


CASES = (
    Case("ort_cifar10_resnet20_perchannel", 20, 20),
    Case("ort_cifar10_resnet20_pertensor", 20, 20, program_db=27),
    Case("ort_mobilenet_v1_025_224_perchannel", 28, 28, program_db=23),
    Case("ort_mobilenet_v1_025_224_pertensor", 28, 28, program_db=23),
    Case("tflite_ad_toycar_autoencoder", 10, 10, program_db=65),
    Case("tflite_cifar10_resnet8", 10, 10),
    Case("tflite_cifar10_resnet8_large", 10, 10, program_db=41),
    Case("tflite_kws_dscnn", 10, 10),
    Case("tflite_vww_mobilenet_v1_025_96", 28, 28, program_db=40),
    Case("tflite_mobilenet_v1_025_128_qat_pertensor", 0, 28, frozenset({WIDE_WEIGHTS}), program_db=25),
    Case("tflite_mobilenet_v2_10_224_ptq_perchannel", 53, 53, program_db=23),
    Case("tflite_mobilenet_v2_10_224_qat_pertensor", 3, 53, frozenset({WIDE_WEIGHTS}), program_db=21),
)


def ramps(model) -> dict[str, np.ndarray]:
    """Smooth values over the whole range of each input's grid, with a little noise."""
    rng = np.random.default_rng(3)
    inputs = {}
    for spec in model.inputs:
        shape = [dim if isinstance(dim, int) else BATCH for dim in spec.shape]
        quantize = next(node for node in model.graph.graph if node.inputs[0].name == spec.name)
        grid = grid_of(quantize)
        phase = rng.uniform(0, 6, (shape[0], *[1] * (len(shape) - 1)))
        slope = np.linspace(0, 9, int(np.prod(shape[1:]))).reshape(1, *shape[1:])
        wave = np.sin(slope + phase) * 100 + rng.normal(0, 8, shape) - grid.zero_point
        inputs[spec.name] = (wave * grid.scale).astype(np.float32)
    return inputs


def run_plain(graph: ir.Model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(graph).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_quantized_model_computes_what_it_computed(case: Case, shared_data):
    model = load_model(shared_data(f"qdq_models/{case.name}.qdq.onnx"))
    inputs = ramps(model)
    want = run_plain(model.graph, inputs)
    found = read(model)
    rows = [row for row in found.placement.decisions if row.op_type in ("Conv", "Gemm", "MatMul")]
    assert (sum(row.is_int8 for row in rows), len(rows)) == (case.int8, case.total)
    assert case.reasons <= {row.reason for row in rows if not row.is_int8}
    assert sqnr_db(want, run_plain(write(found), inputs)) > case.written_db
    config = CudaConfig(builder_optimization_level=0)
    own = replace(model, graph=found.graph)
    program = CudaLowering(own, config, inputs, gpu=gpu_named("H200"), device="cpu").reference(found, "fp32")
    got = CudaExecutor(program, *specs_of(program), device="cpu").run(inputs)[model.outputs[0].name]
    assert sqnr_db(want, got) > case.program_db


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", [case.name for case in CASES if "_224_" not in case.name])
def test_an_engine_for_a_cpu_is_near_its_source(name: str, library: str, shared_data):
    """By `quantrt compare`'s own limit: the libraries round sums of codes in ways of their own."""
    path = shared_data(f"qdq_models/{name}.qdq.onnx")
    model = load_model(path)
    inputs = ramps(model)
    config = BuildConfig(device=DeviceConfig(libraries=(library,)), bench=BENCH)
    with build(path, config=config) as engine:
        got = engine.run(inputs)[model.outputs[0].name]
    assert sqnr_db(run_plain(model.graph, inputs), got) > NEAR_DB


CODES = {
    "tflite_cifar10_resnet8": 5,
    "tflite_kws_dscnn": 10,
    "tflite_vww_mobilenet_v1_025_96": 28,
    "tflite_ad_toycar_autoencoder": 9,
    "ort_cifar10_resnet20_perchannel": 11,
}
"""Regions that make codes of codes."""


@pytest.mark.parametrize("name", CODES)
def test_every_region_makes_the_codes_of_exact_sums(name: str, shared_data):
    """Each on what the program itself has at its inputs: no difference is handed on. Midpoints may fall."""
    model = load_model(shared_data(f"qdq_models/{name}.qdq.onnx"))
    found = read(model)
    rows = compare_program(replace(model, graph=found.graph), found, ramps(model))
    assert len(rows) == CODES[name] and all(row.codes for row in rows)
    assert [row.region.name for row in rows if not row.is_equal] == []
    assert sum(row.differ for row in rows) <= 1e-5 * sum(row.codes for row in rows)


def test_a_model_without_activations_between_its_pairs_is_read_too(shared_data):
    """Polygraphy's test model quantizes a constant per channel, with zero points, and convolves it."""
    model = load_model(shared_data("qdq_models/polygraphy_qdq_conv.onnx"))
    found = read(model)
    assert not found.has_int8
    assert sqnr_db(run_plain(model.graph, {}), run_plain(found.graph, {})) > EQUAL_DB
