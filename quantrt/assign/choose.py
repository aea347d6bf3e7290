# SPDX-License-Identifier: Apache-2.0
"""The guard: ship the fastest candidate inside the budget, and floats unless codes are surely faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.tactics.timing import Latency, Paired, compare_paired

__all__ = ["Choice", "Verdict", "choose", "choose_small", "choose_untimed", "fastest"]


@dataclass(frozen=True)
class Verdict:
    """What became of one candidate, in one phrase, with its evidence.

    Attributes:
        against_float: its time over the float baseline's; None for the baseline itself.
        accuracy: None where it was not measured.
    """

    status: str
    reason: str
    against_float: Paired | None = None
    accuracy: Accuracy | None = None


@dataclass(frozen=True)
class Choice:
    """Which candidate is shipped and why.

    Attributes:
        winner, baseline: names; the baseline is the fastest FP32 candidate.
        reason: one sentence about the winner.
        verdicts: one per candidate.
    """

    winner: str
    baseline: str
    reason: str
    verdicts: Mapping[str, Verdict]


def fastest(latencies: Mapping[str, Latency]) -> str:
    """The name with the least median."""
    return min(latencies, key=lambda name: latencies[name].median_ms)


def choose(
    latencies: Mapping[str, Latency],
    is_float: Mapping[str, bool],
    check: Callable[[str], Accuracy | None],
    max_drop_ratio: float,
    *,
    codes: Collection[str] = (),
    coarse: Collection[str] = (),
    why_wrong: Callable[[str], str | None] = lambda name: None,
    floats: str = "fp32",
) -> Choice:
    """Decide from paired timings and measured accuracy.

    Candidates are taken in order of their medians, but for codes that are not surely faster than 16-bit
    floats, and for those of FP8 that are not surely faster than others; the first that is surely faster than
    the baseline and inside the budget wins. Accuracy is measured for no more of them than that takes.

    Args:
        latencies: of candidates timed in the same rounds, at least one float one among them.
        is_float: by name, whether it is a float one, such as FP32, and needs no check.
        codes: names of those that compute with codes.
        coarse: of these, those in FP8, whose codes have 4 digits where int8's have up to 8.
        check: measures a candidate's accuracy; None when there is nothing to measure it on.
        why_wrong: asked of what would be shipped: what it computes wrongly elsewhere than it was checked.
        floats: what the float ones are.
    """
    baseline = fastest({name: latency for name, latency in latencies.items() if is_float[name]})
    verdicts: dict[str, Verdict] = {}
    winner = baseline
    others = {name: latency for name, latency in latencies.items() if not is_float[name]}
    for name in _in_turn(others, codes, coarse):
        pair = compare_paired(latencies[name], latencies[baseline])
        if winner != baseline:
            reason = _not_faster(compare_paired(latencies[name], latencies[winner]), winner)
            verdicts[name] = Verdict("passed over", reason, pair)
            continue
        verdicts[name] = _judge(pair, baseline, partial(check, name), max_drop_ratio)
        if verdicts[name].status == "shipped":
            fault = why_wrong(name)
            if fault is None:
                winner = name
            else:
                verdicts[name] = replace(verdicts[name], status="wrong", reason=fault)
    reason = _reason(winner, baseline, verdicts, floats)
    for name in latencies:
        if is_float[name]:
            verdicts[name] = _float_verdict(name, winner, baseline, reason, floats)
    return Choice(winner, baseline, reason, verdicts)


def _in_turn(latencies: Mapping[str, Latency], codes: Collection[str], coarse: Collection[str]) -> list[str]:
    """Names by their medians; what is not surely faster than what is likely more exact comes behind it."""
    order = sorted(latencies, key=lambda name: latencies[name].median_ms)
    fine = next((name for name in order if name in codes and name not in coarse), None)
    halves = next((name for name in order if name not in codes), None)
    return _behind(_behind(order, fine, coarse, latencies), halves, codes, latencies)


def _behind(
    order: Sequence[str], wanted: str | None, less: Collection[str], latencies: Mapping[str, Latency]
) -> list[str]:
    """The order with those of `less` that are ahead of `wanted`, and not surely faster, right behind it."""
    if wanted is None:
        return list(order)
    place = order.index(wanted)
    unsure = [
        name
        for name in order[:place]
        if name in less and compare_paired(latencies[name], latencies[wanted]).verdict != "faster"
    ]
    ahead = [name for name in order[:place] if name not in unsure]
    return [*ahead, wanted, *unsure, *order[place + 1 :]]


def choose_small(
    choice: Choice,
    name: str,
    latencies: Mapping[str, Latency],
    check: Callable[[str], Accuracy | None],
    max_drop_ratio: float,
) -> Choice:
    """The choice where a candidate is asked for by its size: it is shipped inside the budget, fast or not.

    Args:
        choice: what `choose` decided by time.
        name: of the candidate that is asked for.
    """
    if choice.winner == name:
        return choice
    pair = compare_paired(latencies[name], latencies[choice.baseline])
    accuracy = check(name)
    if accuracy is not None and not accuracy.drop_ratio <= max_drop_ratio:  # a NaN is not
        lost = Verdict("over budget", _lost(accuracy, max_drop_ratio), pair, accuracy)
        reason = f"{choice.winner} is shipped: {name} is outside the budget ({lost.reason})"
        verdicts = {**choice.verdicts, name: lost, choice.winner: Verdict("shipped", reason)}
        return replace(choice, reason=reason, verdicts=verdicts)
    end = "its accuracy was not checked: there are no data" if accuracy is None else "inside the budget"
    speed = f"{1.0 / pair.ratio:.2f}x as fast as {choice.baseline}"
    verdicts = {
        other: replace(v, status="passed over") if v.status == "shipped" else v
        for other, v in choice.verdicts.items()
    }
    if choice.baseline == choice.winner:
        verdicts[choice.baseline] = Verdict("baseline", "the fastest FP32 candidate")
    verdicts[name] = Verdict("shipped", f"asked for by its size; {end}", pair, accuracy)
    return Choice(name, choice.baseline, f"{name} was asked for by its size; it is {speed}, {end}", verdicts)


def choose_untimed(
    names: Sequence[str], check: Callable[[str], Accuracy | None], max_drop_ratio: float
) -> Choice:
    """Decide without timings, for a device that is not here: the first candidate inside the budget.

    Args:
        names: the most wanted first; the last is FP32, which needs no check.
        check: as in `choose`.
    """
    *wanted, baseline = names
    verdicts: dict[str, Verdict] = {}
    winner = baseline
    for name in wanted:
        if winner != baseline:
            verdicts[name] = Verdict("passed over", f"{winner} is wanted more")
            continue
        accuracy = check(name)
        if accuracy is None or accuracy.drop_ratio <= max_drop_ratio:  # a NaN is not
            winner = name
            text = "its accuracy was not checked" if accuracy is None else "inside the budget"
            verdicts[name] = Verdict("shipped", f"{text}; not timed", None, accuracy)
        else:
            verdicts[name] = Verdict("over budget", _lost(accuracy, max_drop_ratio), None, accuracy)
    failed = next((name for name, verdict in verdicts.items() if verdict.status == "over budget"), None)
    reason = f"{winner} was asked for; it was not timed, for its device is not here"
    if failed is not None:
        reason = f"{winner} is shipped, untimed: {failed} is outside the budget ({verdicts[failed].reason})"
    verdicts[baseline] = Verdict("shipped", reason) if winner == baseline else Verdict("baseline", "FP32")
    return Choice(winner, baseline, reason, verdicts)


def _judge(
    pair: Paired, baseline: str, check: Callable[[], Accuracy | None], max_drop_ratio: float
) -> Verdict:
    """What becomes of a candidate that nothing faster was shipped before."""
    if pair.verdict != "faster":
        return Verdict("passed over", _not_faster(pair, baseline), pair)
    accuracy = check()
    if accuracy is None:
        return Verdict("shipped", "fastest; its accuracy was not checked", pair)
    if accuracy.drop_ratio <= max_drop_ratio:  # a NaN is not
        return Verdict("shipped", "fastest inside the budget", pair, accuracy)
    return Verdict("over budget", _lost(accuracy, max_drop_ratio), pair, accuracy)


def _not_faster(pair: Paired, other: str) -> str:
    return f"not surely faster than {other}" if pair.verdict == "same" else f"slower than {other}"


def _lost(accuracy: Accuracy, max_drop_ratio: float) -> str:
    return f"{accuracy.metric} drop {accuracy.drop_ratio:.4f} is over the budget of {max_drop_ratio:.4f}"


def _reason(winner: str, baseline: str, verdicts: Mapping[str, Verdict], floats: str) -> str:
    shipped = verdicts.get(winner)
    if shipped is not None and shipped.against_float is not None:
        is_checked = shipped.accuracy is not None
        end = (
            "inside the accuracy budget" if is_checked else "its accuracy was not checked: there are no data"
        )
        speedup = 1.0 / shipped.against_float.ratio
        return f"{winner} is {speedup:.2f}x as fast as {baseline}{' and ' if is_checked else '; '}{end}"
    for name, verdict in verdicts.items():
        return f"{baseline} is shipped: {name} is {_after_is(verdict)}"
    return f"{floats} was the only precision to choose from"


def _after_is(verdict: Verdict) -> str:
    text = {"over budget": "outside the budget", "wrong": "wrong"}.get(verdict.status)
    return verdict.reason if text is None else f"{text} ({verdict.reason})"


def _float_verdict(name: str, winner: str, baseline: str, reason: str, floats: str) -> Verdict:
    if name == winner:
        return Verdict("shipped", reason)
    if name == baseline:
        return Verdict("baseline", f"the fastest {floats.upper()} candidate")
    return Verdict("passed over", f"slower than {baseline}")
