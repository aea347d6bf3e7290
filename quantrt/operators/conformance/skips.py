# SPDX-License-Identifier: Apache-2.0
"""Every conformance test that is not run, with the reason. A row that names no test fails the suite."""

from __future__ import annotations

from quantrt.operators.conformance.cases import KNOWN, Case
from quantrt.operators.table import OPERATORS

__all__ = ["SKIPS", "why_skipped"]

OLDEST_OPSET = 7
"""Models are of opset 9 and newer; operators that did not change since are run of opset 6 too."""

_TEXT = "text has no place on a torch device"
_RANDOM = "expects the numbers of numpy's generator; ONNX fixes no generator"
_HALF_ULP = (
    "one unit in the last place of float16 (1.04e-3 relative) from numpy's float16 sums, tolerance 1e-3; "
    "tests/conformance compares this case with float64"
)
_NO_NOISE = "expects 1.9e-7 of rounding noise from numpy's transform, tolerance 1e-7, where ours is 0"

SKIPS: dict[str, str] = {
    "test_equal_string": _TEXT,
    "test_equal_string_broadcast": _TEXT,
    "test_bernoulli_expanded": _RANDOM,
    "test_bernoulli_double_expanded": _RANDOM,
    "test_bernoulli_seed_expanded": _RANDOM,
    "test_training_dropout_default": _RANDOM,
    "test_training_dropout_default_mask": _RANDOM,
    "test_training_dropout": _RANDOM,
    "test_training_dropout_mask": _RANDOM,
    "test_dft_inverse": _NO_NOISE,
    "test_dft_inverse_opset19": _NO_NOISE,
    "test_attention_4d_causal_fp16": _HALF_ULP,
    "test_attention_4d_causal_fp16_expanded": _HALF_ULP,
}


def why_skipped(case: Case) -> str | None:
    """Why a case is not run: another operator or version than those that are, or its row; None if it is."""
    others = sorted(case.operators - KNOWN)
    if others:
        return f"its other operators do not run: {', '.join(others)}"
    older = sorted(
        name for name in case.operators if case.opset < OLDEST_OPSET and not _runs(name, case.opset)
    )
    if older:
        return f"in opset {case.opset} attributes say what inputs do later: {', '.join(older)}"
    return SKIPS.get(case.name)


def _runs(operator: str, opset: int) -> bool:
    rows = (row for row in OPERATORS if row.op_type == operator)
    return any(row.since <= opset and (row.until is None or opset <= row.until) for row in rows)
