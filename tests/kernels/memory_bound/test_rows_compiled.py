# SPDX-License-Identifier: Apache-2.0
"""Kernels of Rows regions compiled for every architecture, without a GPU."""

import numpy as np
import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.regions.expression import ARITY, Expression, Operand
from quantrt.regions.region import Rows
from quantrt.tactics.cuda.memory_bound.rows import list_tactics
from quantrt.tactics.cuda.tactic import TensorFacts, Workload
from tests.kernels.memory_bound import expressions as spelled
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar

CAPABILITIES = (80, 86, 89, 90, 100, 120)
H200 = gpu_named("H200")

pytestmark = pytest.mark.slow


def facts(dtype: str, *shape: int) -> TensorFacts:
    return TensorFacts(dtype, shape, tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))))


def kernels_of(expression: Expression, inputs: list[TensorFacts], *outputs: str) -> tuple[KernelSpec, ...]:
    names = [x.name for x in expression.operands if x.kind == "constant"]
    constants = {name: np.ones(inputs[0].shape[-1], np.float32) for name in names}
    workload = Workload("region", Rows(expression), tuple(inputs), outputs, None, constants)
    return list_tactics(workload, H200)[0].drafts[0].kernels


def norm_kernels() -> tuple[KernelSpec, ...]:
    b = Builder(TENSOR, TENSOR, constant("gamma"), constant("beta"), scalar(1e-5), scalar(0.03))
    added = b("add", 0, 1)
    expression = b.build(added, b("quantize", spelled.layer_norm(b, added, 2, 3, 4), 5))
    return kernels_of(expression, [facts("float16", 32, 197, 768)] * 2, "float16", "int8")


def softmax_kernels() -> tuple[KernelSpec, ...]:
    b = Builder(TENSOR, TENSOR)
    expression = b.build(spelled.softmax(b, b("add", 0, 1)))
    return kernels_of(expression, [facts("bfloat16", 8, 12, 9, 197), facts("int8", 8, 1, 1, 197)], "bfloat16")


def turn_kernels() -> tuple[KernelSpec, ...]:
    b = Builder(TENSOR, constant("cos"), constant("sin"), scalar(1e-6))
    x = b("mul", 0, b("rsqrt", b("add", b("row_mean", b("mul", 0, 0)), 3)))
    expression = b.build(b("add", b("mul", x, 1), b("mul", b("swap_pairs", x), 2)))
    return kernels_of(expression, [facts("float16", 2, 24, 4608, 128)], "float16")


def truth_kernels() -> tuple[KernelSpec, ...]:
    b = Builder(TENSOR, TENSOR)
    expression = b.build(b("and", b("lt", 0, 1), 0), b("add", 0, 1))
    return kernels_of(expression, [facts("bool", 64, 64), facts("float32", 64, 1)], "bool", "float32")


def lookup_kernels() -> tuple[KernelSpec, ...]:
    """A sum of embeddings, one of them in codes, and its norm."""
    index, table, scales = (
        Operand(kind, name, ("word", place))
        for kind, name, place in (("tensor", "ids", 1), ("lookup", "codes", 0), ("lookup", "scales", 0))
    )
    b = Builder(index, table, scales, TENSOR, constant("gamma"), constant("beta"), scalar(1e-5))
    added = b("add", b("mul", 1, 2), 3)
    arrays = {
        "codes": np.ones((3000, 384), np.int8),
        "scales": np.ones((3000, 1), np.float32),
        "gamma": np.ones(384, np.float32),
        "beta": np.ones(384, np.float32),
    }
    formula = Rows(b.build(spelled.layer_norm(b, added, 4, 5, 6)))
    inputs = (facts("int64", 32, 128), facts("float16", 32, 128, 384))
    workload = Workload("region", formula, inputs, ("float16",), None, arrays)
    return list_tactics(workload, H200)[0].drafts[0].kernels


def every_operation(*, with_fp8: bool) -> tuple[KernelSpec, ...]:
    """One expression that uses every instruction there is, and sums them up."""
    b = Builder(TENSOR, Operand("tensor", "y"), scalar(0.1))
    total = 0
    for op, count in ARITY.items():
        if op == "quantize_fp8" and not with_fp8:
            continue
        total = b("add", total, b(op, *range(count), value=0.5 if op == "const" else 0.0))
    return kernels_of(b.build(total), [facts("float16", 64, 256)] * 2, "float16")


def test_kernels_compile_for_all_architectures(compile_kernels) -> None:
    norm, softmax, truth = norm_kernels(), softmax_kernels(), truth_kernels()
    assert [len(kernels) for kernels in (norm, softmax, truth)] == [3, 3, 3]
    specs = [norm[0], norm[-1], softmax[0], truth[1], lookup_kernels()[0], turn_kernels()[0]]
    specs += [every_operation(with_fp8=False)[0]]
    results = compile_kernels(specs, CAPABILITIES)
    for result in results.values():
        assert isinstance(result, CompiledKernel), result
        assert set(result.cubins) == set(CAPABILITIES)
    assert not any(result.spills for result in list(results.values())[:6])


@pytest.mark.parametrize("outputs", [("float16",), ("float16", "int8")])
def test_programs_that_load_a_row_ahead_have_room_for_it(compile_kernels, outputs: tuple[str, ...]) -> None:
    """As many share a multiprocessor as are launched for each: 65536 registers, in units of 8 a thread."""
    b = Builder(TENSOR, constant("gamma"), constant("beta"), scalar(1e-5), scalar(0.03))
    y = spelled.layer_norm(b, 0, 1, 2, 3)
    expression = b.build(*(y, b("quantize", y, 4))[: len(outputs)])
    constants = {name: np.ones(1024, np.float32) for name in ("gamma", "beta")}
    workload = Workload(
        "region", Rows(expression), (facts("float16", 12288, 1024),), outputs, None, constants
    )
    (ahead,) = (tactic for tactic in list_tactics(workload, H200) if "ahead" in tactic.name)
    (result,) = compile_kernels(ahead.drafts[0].kernels[:1], CAPABILITIES).values()
    assert isinstance(result, CompiledKernel), result
    assert result.spills == 0
    programs = dict(result.spec.constants)["PROGRAMS"] // H200.multiprocessors
    assert programs * 32 * (-(-result.registers // 8) * 8) <= 65536


def test_fp8_codes_compile_where_there_are_any(compile_kernels) -> None:
    capabilities = [capability for capability in CAPABILITIES if capability >= 89]
    (result,) = compile_kernels([every_operation(with_fp8=True)[0]], capabilities).values()
    assert isinstance(result, CompiledKernel), result
    assert set(result.cubins) == set(capabilities)
