# SPDX-License-Identifier: Apache-2.0
"""Trained models as programs of the CUDA engine, run by its reference tactics on a CPU.

Floors are some 3 dB under what was measured with torch 2.13.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.calibrate.collect import collect  # noqa: E402
from quantrt.calibrate.dataset import open_dataset  # noqa: E402
from quantrt.config import CalibrationConfig, CudaConfig, QuantizeConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.model.for_gpu import for_gpu  # noqa: E402
from quantrt.model.load import load_model  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.quantize.qdq.per_token import spell_per_token  # noqa: E402
from quantrt.quantize.quantize import observed_values, quantize  # noqa: E402
from quantrt.quantize.targets.cuda import CUDA  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.regions.partition import partition  # noqa: E402
from quantrt.regions.region import Gemm, Rows  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from tests.nets import run_ort  # noqa: E402

WITHOUT_KERNELS = CudaConfig(
    exclude_tactic_sources=("triton", "cublaslt", "cudnn"), builder_optimization_level=0
)
BATCH = 2

INT8_FLOORS_DB = {
    "ad_toycar_autoencoder": 25,
    "cifar10_efficientvit_b0": 20,
    "cifar10_mobilenetv3_small": 20,
    "cifar10_resnet20": 27,
    "cifar10_vit_tiny_d9": 27,
    "kws_dscnn": 23,
    "ultraface_rfb320": 22,
}


def normal_inputs(model, rng):
    inputs = {}
    for spec in model.inputs:
        shape = [dim if isinstance(dim, int) else BATCH for dim in spec.shape]
        inputs[spec.name] = rng.standard_normal(shape).astype(np.float32)
    return inputs


def outputs_of(model, inputs, precision, codes=None):
    lowering = CudaLowering(model, WITHOUT_KERNELS, inputs, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(codes, precision)[0])
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        return list(executor.run(inputs).values())
    finally:
        executor.close()


def worst_db(wanted, got):
    pairs = zip(wanted, got, strict=True)
    return min(sqnr_db(one, other) for one, other in pairs if one.dtype.kind == "f")


@pytest.mark.slow
@pytest.mark.parametrize("name", INT8_FLOORS_DB)
def test_a_trained_model_is_the_same_on_a_gpu(name: str, shared_data, rng):
    model = for_gpu(load_model(shared_data(f"models/{name}.onnx")))
    inputs = normal_inputs(model, rng)
    wanted = run_ort(model.graph, inputs)
    assert worst_db(wanted, outputs_of(model, inputs, "fp32")) > 110
    assert worst_db(wanted, outputs_of(model, inputs, "fp16")) > 40
    config, calibration = QuantizeConfig(), CalibrationConfig(method="minmax")
    stats = collect(
        model, observed_values(model, (CUDA,), config), open_dataset(inputs, model.inputs), calibration
    )
    codes = quantize(model, stats, CUDA, config, calibration)
    assert worst_db(wanted, outputs_of(model, inputs, "fp16", codes)) > INT8_FLOORS_DB[name]


@pytest.mark.slow
def test_a_transformer_with_scales_per_token_needs_no_data(shared_data, rng):
    """One kernel makes codes and scales behind each norm; products multiply with the scales themselves."""
    model = for_gpu(load_model(shared_data("models/cifar10_vit_tiny_d9.onnx")))
    inputs = normal_inputs(model, rng)
    config = QuantizeConfig(activations="per-token")
    codes = quantize(model, None, CUDA, config, CalibrationConfig())
    assert worst_db(run_ort(model.graph, inputs), outputs_of(model, inputs, "fp16", codes)) > 33
    regions = partition(spell_per_token(codes).graph).regions
    products = [region.name for region in regions if isinstance(region.formula, Gemm)]
    assert len(products) == len(codes.placement.per_token) == 37
    assert sum(isinstance(region.formula, Rows) for region in regions) < 2.2 * len(products)


@pytest.mark.slow
def test_control_flow_and_recurrence_run(shared_data, rng):
    model = for_gpu(load_model(shared_data("models/silero_vad_16k_op15.onnx")))
    inputs = {
        "input": (0.1 * rng.standard_normal((1, 576))).astype(np.float32),
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000, np.int64),
    }
    wanted = run_ort(model.graph, {spec.name: inputs[spec.name] for spec in model.inputs})
    inputs = {spec.name: inputs[spec.name] for spec in model.inputs}
    assert worst_db(wanted, outputs_of(model, inputs, "fp32")) > 90
    assert worst_db(wanted, outputs_of(model, inputs, "fp16")) > 30
