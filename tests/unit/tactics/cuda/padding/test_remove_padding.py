# SPDX-License-Identifier: Apache-2.0
"""Programs without padding: which steps they have, and what they compute, by the reference."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.config import BuildConfig, CudaConfig, DeviceConfig
from quantrt.errors import ModelError, UsageError
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.padding.zero_padding import zero_padding
from tests.encoder import MASK, S, encoder, mask_of, token_inputs
from tests.nets import quantized, run_ort

UNPADDED = CudaConfig(remove_padding="mask")
LENGTHS = token_inputs(mask_of([12, 5, 1]))


@pytest.fixture(scope="module")
def model() -> Model:
    return zero_padding(encoder(), "mask")


def program_of(
    model: Model, codes: QuantizedModel | None = None, inputs: dict[str, np.ndarray] = LENGTHS
) -> Program:
    lowering = CudaLowering(model, UNPADDED, inputs, gpu=gpu_named("H200"), device="cpu")
    try:
        return lowering.reference(codes, "fp32")
    finally:
        lowering.close()


def run(model: Model, program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        return executor.run(inputs)
    finally:
        executor.close()


def holes() -> np.ndarray:
    """Padding anywhere, and a sample that is nothing else."""
    mask = np.random.default_rng(5).integers(0, 2, (4, S))
    mask[:, 0] = 1
    mask[2] = 0
    return mask


@pytest.mark.parametrize("mask", [mask_of([12, 5, 1]), mask_of([12, 12]), mask_of([1]), holes()])
def test_tokens_are_what_they_are_with_padding(model: Model, mask: np.ndarray):
    inputs = token_inputs(mask)
    found = run(model, program_of(model), inputs)
    tokens, _ = run_ort(encoder().graph, inputs)
    kept = mask != 0
    np.testing.assert_allclose(found["tokens"][kept], tokens[kept], atol=1e-4, rtol=1e-4)
    assert not found["tokens"][~kept].any()


def test_what_reads_tokens_elsewhere_finds_them_in_their_places(model: Model):
    found = run(model, program_of(model), LENGTHS)
    _, sentence = run_ort(encoder().graph, LENGTHS)
    np.testing.assert_allclose(found["sentence"], sentence, atol=1e-4, rtol=1e-4)


def test_codes_are_those_of_the_padded_program(model: Model):
    codes = quantized(model, CUDA, LENGTHS)
    found = run(model, program_of(model, codes), LENGTHS)
    lowering = CudaLowering(model, CudaConfig(), LENGTHS, gpu=gpu_named("H200"), device="cpu")
    padded = run(model, lowering.reference(codes, "fp32"), LENGTHS)
    lowering.close()
    kept = LENGTHS["mask"] != 0
    # Sums of attention are of other terms in another order: a code may be one off.
    assert sqnr_db(padded["tokens"][kept], found["tokens"][kept]) > 45
    assert not found["tokens"][~kept].any()


def test_rows_are_put_in_order_once_and_back_where_they_leave(model: Model):
    program = program_of(model)
    runners = [step.runner for step in program.steps]
    assert runners.count("token_index") == 1
    packed = [step.inputs[0] for step in program.steps if step.runner == "pack_tokens"]
    assert packed == ["x", "tokens.flags"]
    unpacked = [step.inputs[0] for step in program.steps if step.runner == "unpack_tokens"]
    assert unpacked == ["tokens before zeros", "tokens"]
    assert not any("added" in step.outputs for step in program.steps)  # the mask of the scores is gone
    (attention,) = (step for step in program.steps if "token offsets" in step.inputs)
    assert attention.options["formula"]["is_packed"]
    assert not attention.options["formula"]["has_mask"]


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (MASK.replace("zero, lowest", "lowest, zero"), "masks other keys than the padding"),
        (
            "\n  flags = Cast<to=1>(mask)\n  added = Unsqueeze(flags, heads_and_queries)",
            "masks other keys than the padding",
        ),
        (
            "\n  words0 = Cast<to=9>(ids)\n  wide = Unsqueeze(words0, heads_and_queries)"
            "\n  added = Where(wide, zero, lowest)",
            "masks other keys than the padding",
        ),
    ],
)
def test_another_mask_is_refused(mask: str, why: str):
    with pytest.raises(ModelError, match="cannot be removed") as caught:
        program_of(zero_padding(encoder(mask), "mask"))
    assert why in (caught.value.got or "")


def test_the_report_says_how_much_there_was(model: Model):
    config = replace(UNPADDED, builder_optimization_level=0, exclude_tactic_sources=("triton", "cublaslt"))
    lowering = CudaLowering(model, config, LENGTHS, gpu=gpu_named("H200"), device="cpu")
    program = program_from_model(lowering.lower(None, "fp32")[0])
    lowering.close()
    told = [note for note in program.notes["tuning"] if "padding" in note]
    assert told == [
        "padding is removed by 'mask': 1 attentions and 6 regions beside them; outputs are 0 at padding"
    ]


def test_outputs_of_tokens_alone_get_zeros():
    model = encoder()
    zeroed = zero_padding(model, "mask")
    tokens, sentence = run_ort(model.graph, LENGTHS)
    found, same = run_ort(zeroed.graph, LENGTHS)
    np.testing.assert_array_equal(found, np.where(LENGTHS["mask"][..., None] != 0, tokens, 0))
    np.testing.assert_array_equal(same, sentence)
    assert zero_padding(model, None) is model
    with pytest.raises(UsageError, match="'attention_mask'"):
        zero_padding(model, "attention_mask")


def test_a_cpu_has_no_such_engine():
    with pytest.raises(UsageError, match="GPU"):
        BuildConfig(device=DeviceConfig(device="cpu"), cuda=UNPADDED)
