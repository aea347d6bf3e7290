# SPDX-License-Identifier: Apache-2.0
"""Which backends of torch's attention are planned, and why the others are not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.plan.program import Step
from quantrt.regions.region import Attention, View
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners.attention import open_runner
from quantrt.tactics.cuda.attention.attention import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic, TensorFacts, Workload

ALL = {"cudnn", "flash", "efficient", "math"}


def facts(shape: tuple[int, ...], dtype: str) -> TensorFacts:
    strides = tuple(int(torch.tensor(shape[axis + 1 :]).prod()) for axis in range(len(shape)))
    return TensorFacts(dtype, shape, strides)


def workload(
    *,
    dtype: str = "float16",
    q: tuple[int, ...] = (2, 12, 128, 64),
    v: tuple[int, ...] | None = None,
    mask: tuple[int, ...] | None = None,
    is_transposed: bool = True,
    output: str | None = None,
    constant: np.ndarray | None = None,
    **fields: object,
) -> Workload:
    v = v or q
    k = (*v[:-2], q[-1], v[-2]) if is_transposed else (*v[:-1], q[-1])
    inputs = [facts(q, dtype), facts(k, dtype), facts(v, dtype)]
    if mask is not None:
        inputs.append(facts(mask, dtype))
    edges = (("n", 0), ("n", 1), ("n", 2))
    constants = {} if constant is None else {"table": constant}
    if constants:
        fields["mask_constant"] = "table"
    formula = Attention(edges, 0.125, is_transposed, has_mask=mask is not None, **fields)
    return Workload("attention", formula, tuple(inputs), (output or dtype,), None, constants)


def legal(case: Workload, gpu: str = "h200") -> set[str]:
    found = library_rows(case, gpu_named(gpu))
    return {tactic.name for tactic in found if isinstance(tactic, Tactic)}


def library_rows(case: Workload, gpu: GpuFacts) -> list[Tactic | Rejected]:
    return [row for row in list_tactics(case, gpu, allows_codes=False) if row.source != "triton"]


def reason(case: Workload, name: str, gpu: str = "h200") -> str:
    [found] = [row for row in library_rows(case, gpu_named(gpu)) if row.name == name]
    assert isinstance(found, Rejected)
    return found.reason


@pytest.mark.parametrize(
    ("case", "gpu", "want"),
    [
        pytest.param(workload(), "h200", ALL, id="plain"),
        pytest.param(workload(is_transposed=False), "a10", ALL, id="k not transposed"),
        pytest.param(workload(mask=(2, 1, 1, 128)), "h200", ALL - {"flash"}, id="mask"),
        pytest.param(
            workload(constant=np.zeros((128, 128), np.float32)), "h200", ALL - {"flash"}, id="constant"
        ),
        pytest.param(workload(is_causal=True), "h200", ALL, id="causal"),
        pytest.param(
            workload(is_causal=True, v=(2, 12, 64, 64)), "h200", ALL - {"flash"}, id="causal, fewer keys"
        ),
        pytest.param(workload(), "t4", {"efficient", "math"}, id="t4"),
        pytest.param(workload(), "v100", {"efficient", "math"}, id="v100"),
        pytest.param(workload(dtype="float32"), "h200", {"efficient", "math"}, id="float32"),
        pytest.param(workload(dtype="bfloat16"), "h200", ALL, id="bfloat16"),
        pytest.param(workload(dtype="bfloat16"), "t4", set(), id="bfloat16 on a t4"),
        pytest.param(workload(q=(1, 3, 7, 41)), "h200", {"flash", "math"}, id="odd head"),
        pytest.param(
            workload(q=(1, 3, 7, 41), dtype="float32"), "t4", {"efficient", "math"}, id="odd head, t4"
        ),
        pytest.param(workload(q=(1, 3, 7, 256)), "h200", ALL, id="large head"),
        pytest.param(workload(q=(1, 3, 7, 256)), "a100", ALL - {"cudnn"}, id="large head, a100"),
        pytest.param(workload(q=(1, 3, 7, 264)), "h200", {"efficient", "math"}, id="larger head"),
        pytest.param(workload(q=(1, 3, 7, 64), v=(1, 3, 1, 64)), "h200", ALL - {"cudnn"}, id="one key"),
        pytest.param(workload(q=(1, 3, 7, 64), v=(1, 3, 9, 32)), "h200", ALL - {"flash"}, id="other v head"),
        pytest.param(workload(q=(1, 8, 7, 64), v=(1, 2, 9, 64)), "h200", ALL - {"efficient"}, id="grouped"),
        pytest.param(workload(q=(0, 8, 7, 64)), "h200", {"math"}, id="empty"),
    ],
)
def test_legal_backends(case: Workload, gpu: str, want: set[str]):
    assert legal(case, gpu) == want


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_there_is_a_tactic_on_every_gpu(gpu):
    rows = library_rows(workload(mask=(128, 128)), gpu)
    assert [row.name for row in rows] == ["cudnn", "flash", "efficient", "math"]
    assert isinstance(rows[-1], Tactic)
    assert all(isinstance(row, Tactic) or row.reason for row in rows)


def test_reasons_name_what_is_wrong():
    assert reason(workload(), "flash", "t4") == "flash attention needs compute capability 8.0, T4 has 7.5"
    assert "takes no mask" in reason(workload(mask=(1, 128)), "flash")
    assert "multiple of 8" in reason(workload(q=(1, 3, 7, 41)), "cudnn")
    assert "int8" in reason(workload(dtype="int8", output="float16"), "math")
    assert "complex64" in reason(workload(output="complex64"), "math")
    assert "do not fit" in reason(workload(q=(1, 3, 7, 64), v=(1, 2, 9, 64)), "math")
    assert "[batch, heads, length, size]" in reason(workload(q=(3, 7, 64), v=(3, 7, 64)), "math")


def test_another_formula_is_refused_with_its_name():
    case = Workload("r", View(), (facts((2, 3), "float16"),), ("float16",))
    assert not legal(case)
    assert "View" in reason(case, "math")


def test_the_other_backends_stand_behind_the_first():
    first = {
        row.name: row.drafts[0].options["backends"] for row in library_rows(workload(), gpu_named("h100"))
    }
    assert first == {
        "cudnn": ["cudnn", "flash", "efficient", "math"],
        "flash": ["flash", "cudnn", "efficient", "math"],
        "efficient": ["efficient", "cudnn", "flash", "math"],
        "math": ["math"],
    }


def test_workspace():
    by_name = {row.name: row for row in library_rows(workload(q=(1, 2, 8, 16)), gpu_named("h200"))}
    scores = 1 * 2 * 8 * 8
    assert by_name["math"].workspace_bytes == 2 * 4 * scores + 3 * 4 * 2 * 8 * 16
    # Row sums, and k [B, H, D, T] copied to rows.
    assert by_name["flash"].workspace_bytes == 4 * 2 * 8 + 2 * 2 * 8 * 16
    by_rows = {
        row.name: row
        for row in library_rows(workload(q=(1, 2, 8, 16), is_transposed=False), gpu_named("h200"))
    }
    assert by_rows["flash"].workspace_bytes == 4 * 2 * 8


CONSTANTS = {
    "added": np.linspace(-3, 1, 4 * 7 * 9, dtype=np.float32).reshape(4, 7, 9),
    "of one row": np.array([0, -np.inf, 1, 2, -1e30, 0, 0, -1, 3], np.float32),
    "of one column": np.linspace(-1, 1, 7, dtype=np.float32)[:, None],
    "kept": np.tri(7, 9, k=2, dtype=bool),
    "dropped": ~np.tri(7, 9, k=2, dtype=bool),
}


@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_constant_mask_is_stored_as_it_is_added(kind: str, dtype: str, is_causal: bool):
    array = CONSTANTS[kind]
    mask_kind = kind if kind in ("kept", "dropped") else "added"
    case = workload(
        q=(2, 4, 7, 16),
        v=(2, 2, 9, 16),
        dtype=dtype,
        constant=array,
        mask_kind=mask_kind,
        mask_value=-1e9,
        is_causal=is_causal,
    )
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(fact.shape, generator=generator).to(getattr(torch, dtype)) for fact in case.inputs]
    [want] = compute(case.formula, inputs, case.outputs, None, {"table": torch.from_numpy(array)})
    tactics = [row for row in library_rows(case, gpu_named("h200")) if isinstance(row, Tactic)]
    for tactic in tactics:
        [draft] = tactic.drafts
        [constant] = draft.constants
        stored = torch.from_numpy(constant.make())
        assert stored.dtype == getattr(torch, dtype) and not stored.isnan().any()
        assert stored.shape[-1] in (1, 16), "rows of a fused kernel begin at multiples of 16 elements"
        step = Step(draft.runner, "r", draft.inputs, draft.outputs, draft.options, (constant.key,))
        runner = open_runner(step, Assets(torch.device("cpu"), {constant.key: stored}, {}))
        [got] = runner.run(inputs, lambda: None)
        assert torch.allclose(got, want, rtol=0, atol=1e-5 if dtype == "float32" else 8e-3)


def test_equal_masks_of_other_kinds_are_other_constants():
    truths = np.tri(128, dtype=bool)
    keys = set()
    for kind, number in (("kept", -np.inf), ("dropped", -np.inf), ("kept", -1e9)):
        case = workload(constant=truths, mask_kind=kind, mask_value=number)
        rows = [row for row in library_rows(case, gpu_named("h200")) if isinstance(row, Tactic)]
        keys |= {row.drafts[0].constants[0].key for row in rows}
    assert len(keys) == 3


def test_a_draft_opens_and_computes():
    case = workload(q=(2, 4, 7, 16), v=(2, 2, 9, 16), mask=(1, 9), dtype="float32")
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(fact.shape, generator=generator) for fact in case.inputs]
    tactics = [row for row in library_rows(case, gpu_named("h200")) if isinstance(row, Tactic)]
    assert tactics
    for tactic in tactics:
        [draft] = tactic.drafts
        assert draft.inputs == ("in0", "in1", "in2", "in3")
        step = Step(draft.runner, "r", draft.inputs, draft.outputs, draft.options)
        [got] = open_runner(step, Assets(torch.device("cpu"), {}, {})).run(inputs, lambda: None)
        [want] = compute(case.formula, inputs, case.outputs)
        assert torch.allclose(got, want, rtol=0, atol=1e-5)


def coded(case: Workload, gpu: str = "h200", *, allows: bool = True) -> list[str]:
    """Names of tactics that make codes, without what all of them begin with."""
    rows = list_tactics(case, gpu_named(gpu), allows_codes=allows)
    names = [row.name for row in rows if isinstance(row, Tactic) and "coded" in row.name.split()]
    assert all(name.startswith("attention coded ") for name in names)
    return [name.removeprefix("attention coded ") for name in names]


def test_attention_over_codes_is_for_engines_with_codes_and_many_keys():
    case = workload(q=(2, 8, 2048, 64), is_transposed=False)
    names = coded(case)
    assert names and all(name.startswith("hopper ") for name in names)
    few = workload(q=(2, 8, 2048, 64), v=(2, 8, 77, 64), is_transposed=False)
    for gpu in ("h200", "a100", "4090"):
        assert coded(case, gpu, allows=False) == coded(few, gpu) == []
        assert coded(case, gpu)
    assert coded(case, "t4") == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(workload(q=(2, 8, 2048, 64), mask=(2048, 2048)), id="rows"),
        pytest.param(workload(q=(2, 8, 2048, 64), mask=(2, 1, 1, 2048)), id="keys"),
        pytest.param(workload(q=(2, 8, 2048, 64), mask=(2, 1, 1, 2048), mask_kind="kept"), id="kept"),
        pytest.param(
            workload(q=(2, 8, 2048, 64), constant=np.zeros((2048, 2048), np.float32)), id="constant"
        ),
        pytest.param(workload(q=(2, 8, 2048, 160)), id="wide heads"),
        pytest.param(workload(q=(2, 8, 2048, 41)), id="odd heads"),
    ],
)
def test_what_the_kernel_for_9_0_does_not_take_is_for_the_portable_one(case):
    names = coded(case)
    forms = [" ".join(name.split()[:2]) for name in names]
    assert sorted(set(forms)) == ["int8 floats", "int8 fp8"] and forms[0] == "int8 fp8"
    has_mask = case.formula.has_mask
    (first, *_) = [
        row
        for row in list_tactics(case, gpu_named("h200"), allows_codes=True)
        if row.name == f"attention coded {names[0]}"
    ]
    assert isinstance(first, Tactic)
    encoder, draft = first.drafts
    assert draft.inputs == ("in0", "in1", "in2", *(("in3",) if has_mask else ()), *encoder.outputs)
    assert len(draft.constants) == int(bool(case.formula.mask_constant))
    assert first.workspace_bytes > 0


@pytest.mark.parametrize(
    ("gpu", "has_fp8"), [("a100", False), ("a10", False), ("4090", True), ("5090", True), ("b200", True)]
)
def test_values_are_codes_where_tensor_cores_have_fp8(gpu: str, has_fp8: bool):
    for D in (64, 128, 256):
        names = coded(workload(q=(2, 16, 2048, D), is_transposed=False), gpu)
        assert names and any(name.startswith("int8 fp8 ") for name in names) == has_fp8
        assert any(name.startswith("int8 floats ") for name in names)


def test_too_few_queries_are_not_worth_codes():
    assert coded(workload(q=(1, 8, 1, 64), v=(1, 8, 4096, 64), is_transposed=False), "a100") == []


def test_the_kernel_for_9_0_says_what_it_does_not_take():
    masked = workload(q=(2, 8, 2048, 64), is_transposed=False, mask=(2048, 2048))
    (row,) = [
        row for row in list_tactics(masked, gpu_named("h200"), allows_codes=True) if "hopper" in row.name
    ]
    assert isinstance(row, Rejected) and row.reason == "a mask with a row for every query"


def test_a_row_of_a_mask_goes_with_floats_alone():
    masked = workload(q=(2, 8, 2048, 64), is_transposed=False, mask=(2, 1, 1, 2048))
    rows = list_tactics(masked, gpu_named("h200"), allows_codes=True)
    (first, *_) = found = [row for row in rows if isinstance(row, Tactic) and "hopper" in row.name]
    assert all(row.name.startswith("attention hopper floats ") for row in found)
    assert first.drafts[0].inputs == ("in0", "in1", "in2", "in3")


def test_scores_are_scaled_by_numbers_above_0_alone():
    case = workload(q=(2, 8, 2048, 64), is_transposed=False)
    case = replace(case, formula=replace(case.formula, scale=-1.0))
    own = [row for row in list_tactics(case, gpu_named("h200"), allows_codes=True) if row.source == "triton"]
    assert own and {row.reason for row in own if isinstance(row, Rejected)} == {"a scale of -1"}
    assert not any(isinstance(row, Tactic) for row in own)


def test_few_keys_have_a_kernel_of_their_own_on_9_0():
    def short(gpu: str = "h200", **shapes: tuple[int, ...]) -> list[str]:
        case = workload(is_transposed=False, **shapes)
        rows = list_tactics(case, gpu_named(gpu), allows_codes=False)
        return [row.name for row in rows if isinstance(row, Tactic) and "short" in row.name]

    assert short(q=(32, 12, 197, 64)) == ["attention short 128x64+16"]
    assert short(q=(32, 12, 384, 64), mask=(32, 1, 1, 384)) == ["attention short 128x64"]
    assert short(q=(1, 12, 128, 64)) == []  # too few tiles
    assert short(q=(32, 12, 2048, 64)) == []
    assert short("a100", q=(32, 12, 384, 64)) == []
