# SPDX-License-Identifier: Apache-2.0
"""A program without padding by our kernels in Triton's interpreter, against ONNX Runtime with padding."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.padding.zero_padding import zero_padding
from tests.encoder import S, encoder, mask_of, token_inputs
from tests.nets import quantized, run_ort

OWN = CudaConfig(
    builder_optimization_level=0,
    exclude_tactic_sources=("torch", "cudnn", "cublaslt"),
    remove_padding="mask",
)
TIMED = token_inputs(mask_of([12, 5, 1]))

# numpy warns where IEEE 754 goes on with infinities and NaN; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def scattered() -> np.ndarray:
    """Padding anywhere, and a sample that is nothing else."""
    mask = np.random.default_rng(5).integers(0, 2, (4, S))
    mask[:, 0] = 1
    mask[2] = 0
    return mask


@pytest.mark.parametrize(("precision", "least_db"), [("fp16", 55), ("int8", 25)])
def test_tokens_are_those_of_the_padded_model(precision: str, least_db: float):
    model = zero_padding(encoder(), "mask")
    codes = quantized(model, CUDA, TIMED) if precision == "int8" else None
    lowering = CudaLowering(model, OWN, TIMED, gpu=gpu_named("A100"), device="cpu")
    program = program_from_model(lowering.lower(codes, "fp16")[0])
    lowering.close()
    stopping = [step.runner for step in program.steps if step.options.get("has_live_rows")]
    assert stopping == ["gemm", "gemm", "rows", "gemm", "gemm", "rows"]
    assert [step.runner for step in program.steps].count("fused_attention") == 1
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        for mask in (TIMED["mask"], mask_of([12, 12]), scattered()):
            inputs = token_inputs(mask, seed=8)
            found = executor.run(inputs)
            (tokens, sentence), kept = run_ort(encoder().graph, inputs), mask != 0
            assert sqnr_db(tokens[kept], found["tokens"][kept]) > least_db
            assert not found["tokens"][~kept].any()
            begins = kept[:, 0]
            assert sqnr_db(sentence[begins], found["sentence"][begins]) > least_db
    finally:
        executor.close()


def test_what_is_timed_is_told_apart_by_its_tokens():
    model = zero_padding(encoder(), "mask")
    counts = []
    for mask in (mask_of([12, 5, 1]), mask_of([12, 12, 12])):
        config = replace(OWN, exclude_tactic_sources=("torch", "cudnn", "cublaslt", "triton"))
        lowering = CudaLowering(model, config, token_inputs(mask), gpu=gpu_named("A100"), device="cpu")
        program = program_from_model(lowering.lower(None, "fp16")[0])
        lowering.close()
        counts.append({row["key"] for row in program.notes["regions"].values() if row["key"]})
    assert counts[0] != counts[1]
