# SPDX-License-Identifier: Apache-2.0
"""Where `accurate` stands: the first table of the page of `benchmarks.accuracy`, a row for every model."""

__all__ = ["standing"]

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages.page import number, table
from benchmarks.peers.contenders import CONTROL

STANDARD_ERRORS = 3.92
"""That a 95 % interval is wide, of a normal distribution: for rows that do not tell the error itself."""

PEERS = (
    *("ort default", "ort entropy", "ort percentile", "ort u8s8"),
    *("nncf default", "nncf read_model", CONTROL, "mo max", "mo entropy"),
)
"""Those that every model is compared with where they can: `nncf transformer` is for attention alone."""

BEST, TIED, BEHIND = "best", "tied", "behind"

TEXT = """`accurate` and, in brackets, the best of all peers by that figure, with the difference and its
standard error: `best` where `accurate` is ahead by more than that error, `tied` within it, `behind` beyond
it. The error is the standard deviation of the difference over 2000 draws of the sources with replacement,
both figures from the same draw (of rows from before it was kept: the 95 % interval over 3.92). The best of a
dozen peers is the best on these samples by chance too, which that error does not hold.

Beside the model's own metric is FP32's: where a peer is above FP32 by more than the error, FP32 is behind it
too, and what is measured is how noise changes wrong decisions. Where `nncf control` is ahead, it leaves
products in floats that `accurate` computes on codes: so how `accurate` stands among the others is told too,
and what `quantrt build` makes by `accurate` to control's target, with how many products each leaves in floats
and its time for one sample ([accuracy-control-cpu.md](accuracy-control-cpu.md)). Intervals are in the second
table. `without` names peers that failed, for a reason told at the end, or were not measured.

"""


def standing(models: Mapping[str, Any], controlled: Mapping[str, Any]) -> str:
    """Markdown: what is compared, and a row for every model that `accurate` was measured on.

    Args:
        models: rows of `benchmarks.accuracy`, by name.
        controlled: rows of `benchmarks.accuracy_control`, by name.
    """
    rows = [_row(name, model, controlled.get(name)) for name, model in models.items() if _compared(model)]
    columns = ["model", "SQNR, dB", "agreement, %", "own metric", "`accurate` is", "without"]
    return TEXT + table(columns, rows)


def _row(name: str, model: Mapping[str, Any], controlled: Mapping[str, Any] | None) -> list[str]:
    compared = _compared(model)
    sqnr = [item for item in compared if item["metric"].startswith("SQNR")]
    agreement = [item for item in compared if item["metric"] == "agreement"]
    own = [item for item in compared if item not in sqnr and item not in agreement]
    return [
        name,
        "; ".join(_cell(item, _output(item) if len(sqnr) > 1 else "", 2) for item in sqnr),
        "; ".join(_cell(item, "", 2, 100) for item in agreement),
        "; ".join(_cell(item, item["metric"], 4) + _beside_floats(model) for item in own),
        _verdict(compared, model, controlled),
        ", ".join(peer for peer in PEERS if "sqnr_db" not in model["contenders"].get(peer, {})),
    ]


def _compared(model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = model.get("accurate_comparisons", ())
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
    return float(item.get("standard_error", (item["hi"] - item["lo"]) / STANDARD_ERRORS))


def _verdict(
    compared: Sequence[Mapping[str, Any]], model: Mapping[str, Any], controlled: Mapping[str, Any] | None
) -> str:
    """`best` or `tied` in everything, or what it is behind in, and what there is to say of that."""
    behind = [item for item in compared if _stands(item) == BEHIND]
    if not behind:
        return BEST if any(_stands(item) == BEST for item in compared) else TIED
    by_control = [item for item in behind if item["best_peer"] == CONTROL]
    parts = [_behind(item, model) for item in behind if item not in by_control]
    if by_control:
        names = ", ".join(str(item["metric"]) for item in by_control)
        parts.append(
            f"{BEHIND} {CONTROL} by {names}{_among_codes(by_control, model)}{_at_target(controlled)}"
        )
    return "; ".join(parts)


def _among_codes(by_control: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> str:
    """How it stands among the other peers in what control is ahead by; nothing where that is not known."""
    metrics = {item["metric"] for item in by_control}
    others = [item for item in model.get("all_codes_comparisons", ()) if item["metric"] in metrics]
    told = [
        f"{_stands(item)} by {item['metric']} ({item['best_peer']} {item['peer']:.4g})" for item in others
    ]
    return f"; of all others {', '.join(told)}" if told else ""


def _behind(item: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """By what; of the model's own metric, whether FP32 is as well, and how often both decide as FP32."""
    if item["metric"] != model["score_name"]:
        return f"{BEHIND} by {item['metric']}"
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


def _at_target(controlled: Mapping[str, Any] | None) -> str:
    """What both make to control's own target; nothing where that was not measured."""
    if controlled is None or any("error" in row for row in controlled["contenders"].values()):
        return ""
    ours, theirs = (controlled["contenders"][name] for name in ("quantrt", "nncf"))
    compared = controlled.get("comparisons", ())
    floats = [row["in_floats"] == row["products"] for row in (ours, theirs)]
    verdict = f": {_worst(compared)}" if compared else ""
    if all(floats):
        verdict = ": both are floats"
    elif floats[0]:
        verdict = ": floats, where no codes that keep it gain time"
    ms = controlled.get("times", {}).get("ms", {})
    made = _made(ours, ms.get("quantrt")), _made(theirs, ms.get("nncf"))
    return f"; to its target {made[0]}, control's {made[1]}{verdict}"


def _worst(compared: Sequence[Mapping[str, Any]]) -> str:
    found = {_stands(item) for item in compared}
    return next(verdict for verdict in (BEHIND, TIED, BEST) if verdict in found)


def _made(row: Mapping[str, Any], ms: float | None) -> str:
    """Its figures, how much of it is in floats, and its milliseconds where they were taken."""
    agreement = f", {100 * row['agreement_ratio']:.2f} %" if "agreement_ratio" in row else ""
    sqnr = " and ".join(f"{value:.2f}" for value in row["sqnr_db"].values())
    taken = "" if ms is None else f" in {ms:.3f} ms"
    return f"{sqnr} dB{agreement} with {row['in_floats']} of {row['products']} in floats{taken}"
