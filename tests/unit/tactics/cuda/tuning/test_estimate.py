"""The roofline, against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Attention, Conv, Rows
from quantrt.tactics.cuda.tactic import Draft, Tactic
from quantrt.tactics.cuda.tuning.estimate import LAUNCH_US, Work, estimate_us, work_of
from tests.unit.tactics.cuda.workload_samples import facts, int8_gemm, scaled_rows

H200 = gpu_named("H200")
ONE = Tactic("triton", "one", (Draft("gemm", ("in0",), ("out0",)),))
REFERENCE = Tactic("torch", "reference", (Draft("formula", ("in0",), ("out0",)),))


def test_work_of_a_product():
    assert work_of(int8_gemm(M=7, K=41, N=33)) == Work(7 * 41 * 33, 7 * 41 + 41 * 33 + 7 * 33, 7 * 33)


def test_a_product_of_halves_reads_its_weight_as_halves():
    weight = np.random.default_rng(0).standard_normal((41, 33)).astype(np.float32)
    work = replace(int8_gemm(M=7, K=41, N=33), inputs=(facts("float16", 7, 41),), weight=weight)
    assert work_of(work).moved_bytes == 2 * 7 * 41 + 2 * 41 * 33 + 7 * 33


def test_work_of_a_convolution():
    epilogue = int8_gemm().formula.epilogue
    formula = Conv(("c", 0), ("c", 1), "w", (2, 1), (1, 1), (1, 1, 1, 1), 2, epilogue)
    weight = np.zeros((6, 2, 3, 3), np.int8)
    work = replace(int8_gemm(), formula=formula, inputs=(facts("int8", 1, 4, 9, 7),), weight=weight)
    pixels = 6 * 5 * 7
    assert work_of(work) == Work(pixels * 18, 4 * 63 + weight.size + pixels, pixels)


def test_work_of_attention():
    formula = Attention((("q", 0), ("k", 0), ("v", 0)), 0.125, False, False)
    q, v = facts("float16", 2, 3, 5, 8), facts("float16", 2, 3, 7, 16)
    work = replace(int8_gemm(), formula=formula, inputs=(q, facts("float16", 2, 3, 7, 8), v), weight=None)
    work = replace(work, outputs=("float16",))
    read = 2 * (2 * 3 * 5 * 8 + 2 * 3 * 7 * 8 + 2 * 3 * 7 * 16)
    assert work_of(work) == Work(2 * 3 * 5 * 7 * (8 + 16), read + 2 * 2 * 3 * 5 * 16, 2 * 3 * 5 * 16)


def test_work_of_rows():
    assert work_of(scaled_rows(rows=7)) == Work(0, 2 * 4 * 7 * 41, 7 * 41)


def test_work_of_rows_that_are_looked_up():
    """Codes and scales of words, and positions as they come: numbers of rows have no axis along the row."""
    operands = (
        Operand("tensor", "ids", ("gather", 1)),
        Operand("lookup", "codes", ("gather", 0)),
        Operand("lookup", "scales", ("gather", 0)),
        Operand("tensor", "positions", ("add", 1)),
    )
    instructions = (Instruction("mul", (1, 2)), Instruction("add", (4, 3)))
    formula = Rows(Expression(operands, instructions, (5,), (False,)))
    inputs = (facts("int64", 2, 7), facts("float16", 1, 7, 40))
    constants = {"codes": np.zeros((50, 40), np.int8), "scales": np.ones((50, 1), np.float32)}
    work = replace(scaled_rows(), formula=formula, inputs=inputs, outputs=("float16",), constants=constants)
    assert work_of(work) == Work(0, 8 * 2 * 7 + 2 * 7 * 40 + 2 * 2 * 7 * 40, 2 * 7 * 40)


def test_a_large_product_takes_what_the_peak_allows():
    work = replace(int8_gemm(), inputs=(facts("int8", 8192, 8192),), weight=np.zeros((8192, 8192), np.int8))
    expected_us = 2 * 8192**3 / (1978.9e12 * 0.75) * 1e6
    assert estimate_us(work, ONE, H200) == pytest.approx(LAUNCH_US + expected_us)


def test_rows_take_what_the_memory_allows():
    work = scaled_rows(rows=10**6)
    assert estimate_us(work, ONE, H200) == pytest.approx(LAUNCH_US + 2 * 4 * 41e6 / (4800e9 * 0.875) * 1e6)


def test_more_steps_more_workspace_and_floats_take_longer():
    work = replace(int8_gemm(), inputs=(facts("int8", 4096, 4096),), weight=np.zeros((4096, 4096), np.int8))
    base_us = estimate_us(work, ONE, H200)
    two = replace(ONE, drafts=ONE.drafts * 2)
    assert estimate_us(work, two, H200) == pytest.approx(base_us + LAUNCH_US)
    assert estimate_us(work, replace(ONE, name="gemm dequantized"), H200) > base_us
    assert estimate_us(scaled_rows(), replace(ONE, workspace_bytes=10**9), H200) > 400
    assert estimate_us(work, REFERENCE, H200) > 5 * base_us


def test_a_gpu_without_int8_units_is_estimated_in_floats():
    assert gpu_named("V100").int8_tops == 0
    assert 0 < estimate_us(int8_gemm(), ONE, gpu_named("V100")) < 1e3
