# SPDX-License-Identifier: Apache-2.0
"""Attention by our kernel, then by torch's scaled_dot_product_attention: each backend that takes the shapes.

What each backend takes is what torch 2.11 checks before it chooses one (aten/src/ATen/native/transformers:
cuda/sdp_utils.cpp, sdp_utils_cpp.h). Where torch or cuDNN is stricter, or other shapes arrive, the runner
goes on to the next backend of the list that each draft carries; the last, "math", takes any shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.attention import coded, fused, hopper
from quantrt.tactics.cuda.forms.epilogues import as_rows
from quantrt.tactics.cuda.memory_bound.rows_drafts import rows_drafts
from quantrt.tactics.cuda.tactic import (
    Constant,
    Draft,
    Rejected,
    Tactic,
    TensorFacts,
    Workload,
    dense_strides,
)

__all__ = ["list_tactics"]

_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_MAX_FLASH_HEAD = 256
_MAX_CUDNN_HEAD = 128
_WIDE_CUDNN_HEADS = {90: 256}
"""By compute capability, where torch 2.11 has cuDNN compute wider heads: for heads of 256 on an H200 it takes
half of FlashAttention's time (docs/results/cuda-attention8-h200.md)."""
_MAX_CUDNN_BATCH = 65_535
_MASK_UNIT = 16
"""Elements that rows of a mask begin at multiples of (memory-efficient attention; it copies others)."""

_LOWEST = {"float16": -65504.0, "bfloat16": -3.3895313892515355e38, "float32": -3.4028234663852886e38}
_ATTENDED = "attended"
"""The buffer of what a backend gave, where there is an epilogue."""

_ROW_BYTES = 16
"""Rows of q, k and v begin at multiples of this, or are copied."""


@dataclass(frozen=True)
class _Case:
    """The numbers that legality depends on; q is [B, H, S, D], v is [B, G, T, E] with G heads in H."""

    B: int
    H: int
    S: int
    D: int
    G: int
    T: int
    E: int
    dtype: str
    has_mask: bool
    is_causal: bool


def list_tactics(workload: Workload, device: GpuFacts, *, allows_codes: bool) -> list[Tactic | Rejected]:
    """Our kernels in their tiles; every backend of torch, by their speed, or the reason against it.

    Args:
        allows_codes: whether q, k and v may be made codes of 8 bits.
    """
    formula = workload.formula
    wrong = _why_not_attention(workload)
    if wrong is not None or not isinstance(formula, Attention):
        return [Rejected(source, name, wrong or "no attention") for name, source, _ in _BACKENDS]
    case = _case(workload, formula)
    mask = _constant_mask(workload, formula, case.dtype) if formula.mask_constant else None
    if formula.is_packed:
        return fused.list_tactics(workload, formula, None, device)
    own = [
        *hopper.list_tactics(workload, formula, mask, device, allows_codes=allows_codes),
        *(coded.list_tactics(workload, formula, mask, device) if allows_codes else ()),
        *fused.list_tactics(workload, formula, mask, device),
    ]
    rest = _rest(workload, formula, case, device)
    legal: list[str] = []
    reasons: dict[str, str] = {}
    for name, _, why_not in _BACKENDS:
        reason = why_not(case, device)
        if reason is None:
            legal.append(name)
        else:
            reasons[name] = reason
    if isinstance(rest, str):
        reasons.update(dict.fromkeys(legal, rest))
    library = [
        Rejected(source, name, reasons[name])
        if name in reasons
        else _tactic(workload, formula, case, _with_fallbacks(name, legal), rest)
        for name, source, _ in _BACKENDS
    ]
    return [*own, *library]


def _rest(workload: Workload, formula: Attention, case: _Case, device: GpuFacts) -> tuple[Draft, ...] | str:
    """The epilogue over what a backend gave, by the first rows tactic; or why there is none."""
    if formula.epilogue.is_identity and workload.outputs == (case.dtype,):
        return ()
    shape = (case.B, case.S, case.H, case.E)
    B, S, H, E = dense_strides(shape)
    facts = TensorFacts(case.dtype, (case.B, case.H, case.S, case.E), (B, H, S, E))
    return rows_drafts(
        workload,
        as_rows(formula.epilogue),
        (facts,),
        outputs=workload.outputs,
        names={"in0": _ATTENDED},
        device=device,
    )


def _tactic(
    workload: Workload,
    formula: Attention,
    case: _Case,
    backends: list[str],
    rest: tuple[Draft, ...] | str,
) -> Tactic:
    options = {
        "backends": backends,
        "dtype": case.dtype,
        "scale": formula.scale,
        "is_transposed": formula.is_transposed,
        "is_causal": formula.is_causal,
        "mask_kind": formula.mask_kind,
        "mask_value": formula.mask_value,
    }
    inputs = tuple(f"in{number}" for number in range(3 + formula.has_mask))
    constants = (_constant_mask(workload, formula, case.dtype),) if formula.mask_constant else ()
    drafts = rest if isinstance(rest, tuple) else ()
    draft = Draft("attention", inputs, (_ATTENDED if drafts else "out0",), options, constants)
    stored = _BYTES[case.dtype] * case.B * case.H * case.S * case.E if drafts else 0
    workspace_bytes = stored + _workspace_bytes(workload, formula, case, backends[0])
    source = next(source for name, source, _ in _BACKENDS if name == backends[0])
    return Tactic(source, backends[0], (draft, *drafts), workspace_bytes)


def _constant_mask(workload: Workload, formula: Attention, dtype: str) -> Constant:
    """A constant mask as it is added; its rows are filled up, so that each begins where a kernel may read."""
    name = formula.mask_constant
    array = workload.constants[name]

    def make() -> np.ndarray:
        added = _added_mask(array, formula.mask_kind, formula.mask_value, dtype)
        is_row = added.ndim > 0 and added.shape[-1] > 1
        room = -added.shape[-1] % _MASK_UNIT if is_row else 0
        return np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, room)]) if room else added

    return Constant(f"{name}:mask:{formula.mask_kind}:{formula.mask_value}:{dtype}", make)


def _added_mask(array: np.ndarray, kind: str, number: float, dtype: str) -> np.ndarray:
    """A mask as floats that are added to the scores: what is finite stays finite in the type of q."""
    if kind != "added":
        is_kept = array if kind == "kept" else ~array
        array = np.where(is_kept, np.float32(0.0), np.float32(number))
    clipped = np.where(np.isneginf(array), array, np.maximum(array, np.float32(_LOWEST[dtype])))
    return np.ascontiguousarray(clipped.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))


def _with_fallbacks(name: str, legal: list[str]) -> list[str]:
    """The backend, then the others in their order, up to the one that takes any shape."""
    return [name] if name == "math" else [name, *(other for other in legal if other != name)]


def _why_not_attention(workload: Workload) -> str | None:
    """Why no backend can compute the workload."""
    formula, facts = workload.formula, workload.inputs
    if not isinstance(formula, Attention):
        return f"the formula is {type(formula).__name__}, not attention"
    if len(facts) != 3 + formula.has_mask + formula.is_packed or any(
        len(fact.shape) != 4 for fact in facts[:3]
    ):
        return "q, k and v are not [batch, heads, length, size]"
    types = (*(fact.dtype for fact in facts[:3]), fused.float_type(workload))
    wrong = next((dtype for dtype in types if dtype not in _BYTES), None)
    if wrong is not None:
        return f"q, k, v and the result are floats for every backend, not {wrong}"
    q, k, v = (fact.shape for fact in facts[:3])
    T, D = (k[3], k[2]) if formula.is_transposed else (k[2], k[3])
    if D != q[3] or T != v[2] or k[1] != v[1] or not k[1] or q[1] % k[1]:
        return f"q {list(q)}, k {list(k)} and v {list(v)} do not fit each other"
    return None


def _case(workload: Workload, formula: Attention) -> _Case:
    (_, H, S, D), _, (_, G, T, E) = (fact.shape for fact in workload.inputs[:3])
    B = max(fact.shape[0] for fact in workload.inputs[:3])
    has_mask = formula.has_mask or bool(formula.mask_constant)
    return _Case(B, H, S, D, G, T, E, fused.float_type(workload), has_mask, formula.is_causal)


def _why_not_flash(case: _Case, device: GpuFacts) -> str | None:
    if device.capability < 80:
        return f"flash attention needs compute capability 8.0, {device.name} has {_version(device)}"
    if case.dtype == "float32":
        return "flash attention has no float32"
    if case.has_mask:
        return "flash attention takes no mask"
    if case.is_causal and case.S != case.T:
        return f"flash attention is causal for as many keys as queries, got {case.T} and {case.S}"
    if case.D != case.E or case.D > _MAX_FLASH_HEAD:
        return f"flash attention needs equal heads of at most {_MAX_FLASH_HEAD}, got {case.D} and {case.E}"
    return _why_not_fused(case)


def _why_not_cudnn(case: _Case, device: GpuFacts) -> str | None:
    if device.capability < 80:
        return f"cuDNN's attention needs compute capability 8.0, {device.name} has {_version(device)}"
    if case.dtype == "float32":
        return "cuDNN's attention has no float32"
    largest = _WIDE_CUDNN_HEADS.get(device.capability, _MAX_CUDNN_HEAD)
    if case.D % 8 or case.E % 8 or max(case.D, case.E) > largest:
        return (
            f"cuDNN's attention needs heads of a multiple of 8, at most {largest}, got {case.D} and {case.E}"
        )
    if case.T == 1:
        return "cuDNN's attention needs more than one key"
    if max(case.B, case.H) > _MAX_CUDNN_BATCH:
        return f"cuDNN's attention takes at most {_MAX_CUDNN_BATCH} samples and heads"
    return _why_not_fused(case)


def _why_not_efficient(case: _Case, device: GpuFacts) -> str | None:
    if case.dtype == "bfloat16" and device.capability < 80:
        return "memory-efficient attention has no bfloat16 below compute capability 8.0"
    alignment = _gemm_alignment(case.dtype, device)
    if case.D % alignment or case.E % alignment:
        return (
            f"memory-efficient attention needs heads of a multiple of {alignment}, got {case.D} and {case.E}"
        )
    if case.H != case.G:
        return f"memory-efficient attention needs as many key heads as query heads, got {case.G} and {case.H}"
    return _why_not_fused(case)


def _why_not_math(case: _Case, device: GpuFacts) -> str | None:
    if case.dtype == "bfloat16" and device.capability < 80:
        return "no bfloat16 products below compute capability 8.0"
    return None


def _why_not_fused(case: _Case) -> str | None:
    if 0 in (case.B, case.H, case.S, case.T, case.D, case.E):
        return "fused attention takes no empty tensor"
    return None


_Check = Callable[[_Case, GpuFacts], str | None]

_BACKENDS: tuple[tuple[str, str, _Check], ...] = (
    ("cudnn", "cudnn", _why_not_cudnn),
    ("flash", "torch", _why_not_flash),
    ("efficient", "torch", _why_not_efficient),
    ("math", "torch", _why_not_math),
)
"""Name, source and legality of each backend, in the order of their speed on an H200: cuDNN is 1.6 and 1.9
times as fast as FlashAttention-2 at lengths of 4096 and 8192 (docs/results/cuda-attention8-h200.md)."""


def _gemm_alignment(dtype: str, device: GpuFacts) -> int:
    """Elements that a head must be a multiple of: 16 bytes with tensor cores (minimum_gemm_alignment)."""
    uses_tensor_cores = device.capability >= 80 or dtype != "float32"
    return _ROW_BYTES // _BYTES[dtype] if uses_tensor_cores else 1


def _workspace_bytes(workload: Workload, formula: Attention, case: _Case, backend: str) -> int:
    """Memory for the row sums (float32), the padded or packed copies of q, k, v, and math's scores."""
    rows = case.B * case.H * case.S
    if backend == "math":
        # Halves are computed in float32: copies of q, k and v, then the scores before and after softmax.
        copies = sum(4 * math.prod(fact.shape) for fact in workload.inputs[:3])
        return 2 * 4 * rows * case.T + (copies if case.dtype != "float32" else 0)
    head_axes = (-1, -2 if formula.is_transposed else -1, -1)
    is_padded = backend == "flash" and case.D % 8 != 0
    copied = (
        math.prod(fact.shape)
        for fact, axis in zip(workload.inputs[:3], head_axes, strict=True)
        if is_padded or fact.strides[axis] != 1
    )
    return 4 * rows + _BYTES[case.dtype] * sum(copied)


def _version(device: GpuFacts) -> str:
    return f"{device.capability // 10}.{device.capability % 10}"
