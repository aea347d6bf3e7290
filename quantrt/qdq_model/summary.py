# SPDX-License-Identifier: Apache-2.0
"""What came of a budget, in the form of `quantrt.report.inspect.budget`; or the error that says so."""

from __future__ import annotations

from typing import Any

from quantrt.errors import AccuracyError
from quantrt.qdq_model.judged import Judged
from quantrt.qdq_model.search import Round, or_inf
from quantrt.qdq_model.within import Outcome
from quantrt.report.json_numbers import finite

__all__ = ["summary", "why_outside"]

ROUND_UP = 1.1
"""Times a drop, as a budget that is proposed: two digits of it are shown."""


def summary(outcome: Outcome) -> dict[str, Any]:
    """The budget, what the float model and all of int8 have, the rounds, and the layers left float."""
    accuracy = outcome.whole.accuracy
    rounds = () if outcome.searched is None else outcome.searched.rounds
    return {
        "metric": accuracy.metric,
        "max_drop_ratio": outcome.budget.max_drop_ratio,
        "measured_on": outcome.checked_on,
        "samples": outcome.best.accuracy.samples,
        "passed": outcome.best.is_inside,
        "float_score": finite(outcome.best.accuracy.float_score),
        "all_int8": _file(outcome.whole, outcome),
        "result": _file(outcome.best, outcome),
        "rounds": [_round(one, outcome) for one in rounds],
        "reason": outcome.reason,
        "float_layers": _float_layers(outcome),
    }


def why_outside(outcome: Outcome) -> AccuracyError:
    """The error where nothing is inside the budget: what was reached, with `summary`, and what to try."""
    whole, best = outcome.whole.accuracy, outcome.best.accuracy
    quantized = outcome.best.fitted.model
    path = quantized.model.path
    which = "" if path is None else f" of '{path}'"
    got = f"{whole.metric} drop {whole.drop_ratio:.4g} with everything in int8 that can be"
    if outcome.best is not outcome.whole:
        share = _int8_ratio(outcome.best, outcome)
        got += f", {best.drop_ratio:.4g} with {share:.1%} of the products in int8"
    return AccuracyError(
        f"no Q/DQ model{which} for {quantized.target.name} is inside the budget",
        got=f"{got} ({outcome.reason})",
        expected=f"a drop of at most {outcome.budget.max_drop_ratio:g}",
        hint=_hint(outcome),
        report=summary(outcome),
    )


def _hint(outcome: Outcome) -> str:
    enough = ROUND_UP * outcome.best.accuracy.drop_ratio
    budget = f"--max-drop {enough:.2g}, " if enough < 1.0 else ""
    if outcome.searched is None:
        return f"{budget}--exclude what does harm (`quantrt compare MODEL.onnx Q.onnx --layers`)"
    return f"{budget}--recipe accurate, or --assign-rounds {2 * max(len(outcome.searched.rounds), 1)}"


def _file(made: Judged, outcome: Outcome) -> dict[str, Any]:
    accuracy = made.accuracy
    return {
        "score": finite(accuracy.score),
        "drop_ratio": finite(accuracy.drop_ratio),
        "sqnr_db": finite(accuracy.sqnr_db),
        "cosine": finite(accuracy.cosine),
        "samples": accuracy.samples,
        "int8_product_ratio": _int8_ratio(made, outcome),
    }


def _round(one: Round, outcome: Outcome) -> dict[str, Any]:
    return {
        **_file(one.judged, outcome),
        "limit": finite(one.limit),
        "noise_ratio": finite(one.noise_ratio),
        "float_layers": len(one.judged.left_float),
        "is_inside": one.judged.is_inside,
        "is_best": one.judged is outcome.best and one.judged.is_inside,
        "culprits": list(one.culprits),
    }


def _float_layers(outcome: Outcome) -> list[dict[str, Any]]:
    """Those of the best that could be 8-bit, those with the most damage first."""
    left, damages = outcome.best.left_float, outcome.damages
    rows = [region for region in outcome.regions if region.name in left]
    rows.sort(key=lambda region: -or_inf(damages.get(region.name, 0.0)))
    return [
        {
            "name": region.name,
            "nodes": list(region.nodes),
            "op_types": list(region.op_types),
            "noise_ratio": finite(damages.get(region.name)),
            "product_ratio": outcome.operations.product_ratio(region.nodes),
            "reason": left[region.name],
        }
        for region in rows
    ]


def _int8_ratio(made: Judged, outcome: Outcome) -> float:
    """Multiply-adds on codes over all of the model."""
    codes = [row.node for row in made.fitted.model.placement.decisions if row.is_int8]
    return outcome.operations.product_ratio(codes)
