# SPDX-License-Identifier: Apache-2.0
"""Where `accurate` stands: the first table of the page of `benchmarks.accuracy`, a row for every model."""

__all__ = ["standing"]

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages.page import number, table
from benchmarks.peers.contenders import CONTROL, CONTROLLED_DROP_RATIO, TO_TARGET

PEERS = (
    *("ort default", "ort entropy", "ort percentile", "ort u8s8"),
    *("nncf default", "nncf read_model", CONTROL, "mo max", "mo entropy"),
)
"""Those that every model is compared with where they can: `nncf transformer` is for attention alone."""

BEST, TIED, BEHIND = "best", "tied", "behind"

TEXT = f"""`accurate` and, in brackets, the best by that figure of all peers but `{CONTROL}`, with the
difference and its standard error: `best` where `accurate` is ahead by more than that error, `tied` within it,
`behind` beyond it. The error is the standard deviation of the difference over 2000 draws of the sources with
replacement, both figures from the same draw. The best of a dozen peers is the best on these samples by chance
too, which that error does not hold. Beside the model's own metric is FP32's: where a peer is above FP32 by
more than the error, FP32 is behind it too, and what is measured is how noise changes wrong decisions.

`{CONTROL}` has a target, and leaves products in floats until it is kept. So it is held against what
`accurate` makes to that target: `quantrt quantize --recipe accurate` within a budget of {CONTROLLED_DROP_RATIO:.0%}, from the
same samples and in the same library. Both are in `to the target`, each with how many products it leaves in
floats and their share of the multiply-adds. The cell is empty where these were not measured together; files of
both, made at other times, are in [quantize-budget-cpu.md](quantize-budget-cpu.md). Where control is ahead of
`accurate` itself, which has no target, that is told under `accurate` is. Intervals are in the tables behind.
`without` names peers that failed, for a reason told at the end, or were not measured.

"""  # noqa: E501


def standing(models: Mapping[str, Any]) -> str:
    """Markdown: what is compared, and a row for every model that `accurate` was measured on.

    Args:
        models: rows of `benchmarks.accuracy`, by name.
    """
    rows = [_row(name, model) for name, model in models.items() if _compared(model)]
    columns = ["model", "SQNR, dB", "agreement, %", "own metric", "`accurate` is", "to the target", "without"]
    return TEXT + table(columns, rows)


def _row(name: str, model: Mapping[str, Any]) -> list[str]:
    compared = _compared(model)
    sqnr = [item for item in compared if item["metric"].startswith("SQNR")]
    agreement = [item for item in compared if item["metric"] == "agreement"]
    own = [item for item in compared if item not in sqnr and item not in agreement]
    return [
        name,
        "; ".join(_cell(item, _output(item) if len(sqnr) > 1 else "", 2) for item in sqnr),
        "; ".join(_cell(item, "", 2, 100) for item in agreement),
        "; ".join(_cell(item, item["metric"], 4) + _beside_floats(model) for item in own),
        _verdict(model),
        _to_target(model),
        ", ".join(peer for peer in PEERS if "sqnr_db" not in model["contenders"].get(peer, {})),
    ]


def _compared(model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """With the best of all peers but control."""
    found: Sequence[Mapping[str, Any]] = model.get("all_codes_comparisons", ())
    return found


def _cell(item: Mapping[str, Any], front: str, digits: int, factor: float = 1.0) -> str:
    """`front OURS (PEER THEIRS, DIFFERENCE ± ERROR) stands`."""
    ours, theirs = (number(factor * item[key], digits) for key in ("quantrt", "peer"))
    peer = f"{item['best_peer']} {theirs}, {_difference(item, digits, factor)}"
    return f"{front} {ours} ({peer}) {_stands(item)}".strip()


def _difference(item: Mapping[str, Any], digits: int, factor: float = 1.0) -> str:
    return f"{factor * item['difference']:+.{digits}f} ± {factor * _standard_error(item):.{digits}f}"


def _beside_floats(model: Mapping[str, Any]) -> str:
    """FP32's own metric, and how far from it `accurate` is where that was measured in pairs."""
    item = model.get("float_comparison")
    text = f"; FP32 {number(model['float_score'], 4)}"
    return text if item is None else f"{text}, {_difference(item, 4)}: {_stands(item)}"


def _output(item: Mapping[str, Any]) -> str:
    return str(item["metric"]).split()[1]


def _stands(item: Mapping[str, Any]) -> str:
    error = _standard_error(item)
    return BEST if item["difference"] > error else TIED if item["difference"] >= -error else BEHIND


def _standard_error(item: Mapping[str, Any]) -> float:
    return float(item["standard_error"])


def _verdict(model: Mapping[str, Any]) -> str:
    """`best` or `tied` in everything, or what it is behind in, and what there is to say of that."""
    compared = _compared(model)
    behind = [item for item in compared if _stands(item) == BEHIND]
    found = BEST if any(_stands(item) == BEST for item in compared) else TIED
    parts = [_behind(item, model) for item in behind] or [found]
    ahead = [item for item in model["accurate_comparisons"] if _stands(item) == BEHIND]
    by_control = [str(item["metric"]) for item in ahead if item["best_peer"] == CONTROL]
    if by_control and "error" not in model["contenders"][CONTROL]:
        parts.append(f"{CONTROL} is ahead by {', '.join(by_control)}")
    return "; ".join(parts)


def _behind(item: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """By what; of the model's own metric, whether FP32 is as well, and how often both decide as FP32."""
    if item["metric"] != model["score_name"]:
        return f"{BEHIND} {item['best_peer']} by {item['metric']}"
    is_above = item["peer"] - model["float_score"] > _standard_error(item)
    floats = f"as FP32 is ({model['float_score']:.4f})" if is_above else f"FP32 {model['float_score']:.4f}"
    agreed = _agreement(model, item["best_peer"]), _agreement(model, "quantrt accurate")
    decides = (
        "" if None in agreed else ": it decides as FP32 on {:.2f} %, `accurate` on {:.2f} %".format(*agreed)
    )
    return f"{BEHIND} {item['best_peer']} by {item['metric']}, {floats}{decides}"


def _agreement(model: Mapping[str, Any], contender: str) -> float | None:
    """In per cent."""
    ratio = model["contenders"][contender].get("agreement_ratio")
    return None if ratio is None else 100 * float(ratio)


def _to_target(model: Mapping[str, Any]) -> str:
    """What `accurate` makes to control's target, what control makes, and how the first stands."""
    ours, theirs = (model["contenders"].get(name) for name in (TO_TARGET, CONTROL))
    if ours is None:
        return ""
    compared = model["target_comparisons"]
    stands = [f"{item['metric']} {_gain(item)} {_stands(item)}" for item in compared]
    verdict = f": {', '.join(stands)}" if stands else ""
    return f"{_made(ours)}; {CONTROL} {_made(theirs)}{verdict}"


def _gain(item: Mapping[str, Any]) -> str:
    if item["metric"] == "agreement":
        return f"{_difference(item, 2, 100)} %"
    return _difference(item, 2 if item["metric"].startswith("SQNR") else 4)


def _made(row: Mapping[str, Any] | None) -> str:
    """Its figures, and how much of it is in floats."""
    if row is None or "error" in row:
        return "was not measured" if row is None else "failed"
    figures = [" and ".join(f"{value:.2f}" for value in row["sqnr_db"].values()) + " dB"]
    figures += [f"{100 * row['agreement_ratio']:.2f} %"] if "agreement_ratio" in row else []
    figures += [number(row["score"], 4)] if "score" in row else []
    floats = f"{row['in_floats']} of {row['products']} in floats ({row['float_ratio']:.1%})"
    return f"{', '.join(figures)} with {floats}"
