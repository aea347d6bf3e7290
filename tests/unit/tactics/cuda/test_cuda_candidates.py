"""Which tactics a workload gets: its family's, then the reference."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import InternalError
from quantrt.gpu import GPUS, gpu_named
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Attention, Conv, Gemm, Host, Nodes, Pool, View
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics, reference_tactic
from quantrt.tactics.cuda.tactic import REFERENCE, Tactic, Workload, see_weights
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from quantrt.tactics.cuda.tuning.prune import FLOAT_LEVELS, LEVELS, prune
from tests.unit.tactics.cuda.workload_samples import facts, int8_gemm, scaled_rows

CPU = torch.device("cpu")


def int8_conv() -> Workload:
    base = int8_gemm(N=16)
    formula = Conv(("c", 0), ("c", 1), "w", (1, 1), (1, 1), (1, 1, 1, 1), 1, base.formula.epilogue)
    weight = np.random.default_rng(5).integers(-127, 128, (16, 8, 3, 3), dtype=np.int8)
    return replace(base, formula=formula, inputs=(facts("int8", 2, 8, 7, 9),), weight=weight)


def int8_pool() -> Workload:
    operands = (Operand("accumulator"), Operand("scalar", value=0.5))
    epilogue = Expression(operands, (Instruction("mul", (0, 1)),), (2, 0), (False, False))
    window = ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
    formula = Pool(("p", 0), "max", *window, False, False, False, True, epilogue)
    return Workload("pool", formula, (facts("int8", 2, 16, 7, 9),), ("float16", "int8"))


def attention() -> Workload:
    tensor = facts("float16", 2, 3, 9, 16)
    formula = Attention((("q", 0), ("k", 0), ("v", 0)), 0.25, False, False)
    return Workload("attention", formula, (tensor,) * 3, ("float16",))


WORKLOADS = [scaled_rows(), int8_gemm(), int8_conv(), int8_pool(), attention()]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: type(workload.formula).__name__)
@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_has_the_reference_last(workload: Workload, gpu):
    found = list_tactics(workload, gpu)
    assert isinstance(found[-1], Tactic)
    assert found[-1].name == REFERENCE
    names = [row.name for row in found if isinstance(row, Tactic)]
    assert len(set(names)) == len(names)
    if gpu.name == "H200":
        assert len(names) > 1


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: type(workload.formula).__name__)
def test_the_reference_computes_the_formula(workload: Workload):
    inputs = random_inputs(workload, CPU)
    weight = None if workload.weight is None else torch.from_numpy(workload.weight)
    constants = {name: torch.from_numpy(array) for name, array in workload.constants.items()}
    wanted = compute(workload.formula, inputs, workload.outputs, weight, constants)
    with OpenTactic(reference_tactic(workload), "region", {}, CPU, weights={}) as opened:
        for output, want in zip(opened.run(inputs), wanted, strict=True):
            assert torch.equal(output, want)


def test_a_constant_named_weight_is_not_the_weight():
    base = int8_gemm()
    operands = tuple(replace(x, name="weight") if x.name else x for x in base.formula.epilogue.operands)
    epilogue = replace(base.formula.epilogue, operands=operands)
    workload = replace(
        base, formula=replace(base.formula, epilogue=epilogue), constants={"weight": base.constants["scale"]}
    )
    float_weight = replace(workload, weight=base.weight.astype(np.float32))
    keys = [constant.key for constant in reference_tactic(float_weight).drafts[0].constants]
    assert len(set(keys)) == 2


@pytest.mark.parametrize("formula", [View(), Host(), Nodes()], ids=lambda formula: type(formula).__name__)
def test_what_tactics_do_not_compute_is_an_error(formula):
    with pytest.raises(InternalError, match="not computed by tactics"):
        list_tactics(replace(scaled_rows(), formula=formula), gpu_named("H200"))


@pytest.mark.parametrize(("level", "names"), [(3, ["t"]), (4, ["t", "c dequantized"])])
def test_detours_through_floats_are_for_codes_that_no_kernel_multiplies(level: int, names: list[str]):
    kernel, detour = Tactic("triton", "t", ()), Tactic("cudnn", "c dequantized", ())
    found = prune([kernel, detour], level)
    assert [tactic.name for tactic in found.kept] == names
    assert len(found.kept) + len(found.rejected) == 2
    assert [tactic.name for tactic in prune([detour], level).kept] == ["c dequantized"]


def test_sources_take_turns_and_the_level_is_a_limit():
    tactics = [Tactic("triton", f"t{n}", ()) for n in range(30)]
    tactics += [Tactic("cudnn", "c0", ()), Tactic("torch", REFERENCE, ())]
    assert [tactic.name for tactic in prune(tactics, 2).kept] == ["t0", "c0", "t1", "t2", "t3"]
    limits = [(level, False, limit) for level, limit in enumerate(LEVELS)]
    limits += [(level, True, limit) for level, limit in enumerate(FLOAT_LEVELS)]
    for level, is_float, limit in limits:
        found = prune(tactics, level, is_float=is_float)
        assert len(found.kept) == (limit or 31)
        assert found.reference == tactics[-1]
        assert len(found.kept) + len(found.rejected) == 31


@pytest.mark.parametrize("is_gated", [False, True])
def test_weights_are_laid_out_for_no_tactic_before_it_is_opened(is_gated: bool):
    operands = (Operand("accumulator"), Operand("accumulator" if is_gated else "scalar", value=0.5))
    epilogue = Expression(operands, (Instruction("mul", (0, 1)),), (2,), (False,))
    formula = Gemm(("n", 0), ("n", 1), "w", False, epilogue, is_gated=is_gated)
    weight = np.ones((512, 16384), np.float32)
    workload = Workload("gate", formula, (facts("float16", 64, 512),), ("float16",), weight)
    tracemalloc.start()
    try:
        found = list_tactics(workload, gpu_named("H200"))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(isinstance(row, Tactic) for row in found) > 10
    assert held_bytes < weight.nbytes / 2


def test_the_largest_of_weights_is_found_before_it_is_asked_for():
    weight = np.array([[1.0, -7.0], [3.0, 2.0]], np.float32)
    halves = replace(
        int8_gemm(), weight=weight, inputs=tuple(replace(x, dtype="float16") for x in int8_gemm().inputs)
    )
    others = [int8_gemm(), scaled_rows()]
    see_weights([halves, *others])
    assert vars(halves)["largest_weight"] == 7.0
    assert not any("largest_weight" in vars(work) for work in others)
