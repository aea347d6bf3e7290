# SPDX-License-Identifier: Apache-2.0
"""How an engine was built, JSON-ready: what was tried, measured, decided, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from quantrt.assign.accuracy import Accuracy
from quantrt.assign.choose import Choice, Verdict
from quantrt.assign.class_labels import class_count, is_guessing
from quantrt.calibrate.stats import Stats
from quantrt.config import BuildConfig, to_dict
from quantrt.ir.collector import without_collector
from quantrt.ir.sources import sources_of
from quantrt.model.model import Model
from quantrt.plan.plan import Layer
from quantrt.quantize.cache_match import CacheMatch
from quantrt.quantize.fit import Fitted
from quantrt.quantize.quantized_model import Decision
from quantrt.report.bench import unsteady_notes
from quantrt.report.built.chosen_shapes import TIMED_SHAPES
from quantrt.report.built.latency_bins import latency_bins
from quantrt.report.built.missing_times import missing_times
from quantrt.report.built.work_shares import work_shares
from quantrt.report.engine_layers.program import coded_attention, node_tactics
from quantrt.report.json_numbers import finite
from quantrt.report.ranges.bins import tensor_table, without_bins
from quantrt.report.ranges.cache import describe_match, missing_notes
from quantrt.tactics.candidates import Candidate, Rejected
from quantrt.tactics.timing import Latency, Paired

__all__ = ["BuildFacts", "build_report", "layer_rows"]

REPORT_VERSION = 1

ATTENTION_PRODUCTS = ("Attention", "MatMul")
CODED_ATTENTION = "its kernel makes codes of the floats that it multiplies"

MOST_HISTOGRAM_RATIO = 0.01
"""Histograms that make an engine larger by more than this part are left out, unless they are asked for."""


@dataclass(frozen=True)
class BuildFacts:
    """What the stages of one build found.

    Attributes:
        cache: the calibration cache that scales were taken from.
        checked_on: what accuracy was measured on.
        latencies: of the finalists; the other candidates were slower in the first heat.
        timed_shapes: of the inputs that they are of; none where nothing was timed.
        memory: bytes on the GPU for the timed inputs, by candidate; None on a CPU.
        layer_times: of some candidates, as quantrt.report.built.candidate_times tells them.
        notes: what the user should know, whatever was shipped.
        int4_nodes: names of those whose weights alone are in 4 bits in a candidate "int4".
        peak_memory: of the process that built it, as quantrt.runtime.peak_memory tells it.
        mixed: how precisions were mixed, as quantrt.report.built.mixed tells it; None where they were not.
    """

    model: Model
    config: BuildConfig
    device: Mapping[str, Any]
    stats: Stats | None
    checked_on: str
    candidates: Mapping[str, Candidate]
    rejected: tuple[Rejected, ...]
    latencies: Mapping[str, Latency]
    choice: Choice
    timed_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    peak_memory: Mapping[str, int | None] = field(default_factory=dict)
    layer_times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cache: CacheMatch | None = None
    mixed: Mapping[str, Any] | None = None
    int4_nodes: frozenset[str] = frozenset()

    @property
    def is_random(self) -> bool:
        """Whether ranges are of random data, and mean nothing."""
        origin = None if self.cache is None else self.cache.cache.origin
        return any(source is not None and source.is_random for source in (self.stats, origin))


@without_collector()
def build_report(facts: BuildFacts) -> dict[str, Any]:
    """The whole report; infinities and NaN become null."""
    winner = facts.candidates[facts.choice.winner]
    compared = dict.fromkeys((facts.choice.baseline, facts.choice.winner))
    notes = (
        *unsteady_notes((name, facts.latencies[name]) for name in compared if name in facts.latencies),
        *facts.notes,
        *(winner.fitted.model.notes if winner.fitted else ()),
        *_kept_float_notes(winner),
        *_noisy_notes(facts),
        *_set_notes(facts),
        *_guess_notes(facts),
    )
    rows = [_candidate_row(facts, name) for name in _order(facts)]
    cache = None if facts.cache is None else _cache(facts, facts.cache, rows)
    return {
        "version": REPORT_VERSION,
        "model": {
            "path": None if facts.model.path is None else facts.model.path.name,
            "file_bytes": facts.model.file_bytes,
            "changes": list(facts.model.changes),
        },
        "config": to_dict(facts.config),
        "calibration": _calibration(facts),
        "calibration_cache": cache,
        "candidates": [
            *rows,
            *(
                {"name": item.spec.name, "status": item.status, "reason": item.reason}
                for item in facts.rejected
            ),
        ],
        "verdict": {
            "shipped": facts.choice.winner,
            "baseline": facts.choice.baseline,
            "reason": facts.choice.reason,
            "checked_on": facts.checked_on,
        },
        TIMED_SHAPES: dict(facts.timed_shapes),
        "peak_memory": dict(facts.peak_memory),
        "mixed": None if facts.mixed is None else dict(facts.mixed),
        "tensors": _tensors(facts, winner),
        "notes": [*notes, *([] if cache is None else missing_notes(cache))],
    }


def _noisy_notes(facts: BuildFacts) -> tuple[str, ...]:
    """Outputs that the shipped engine loses while all of them together are inside the budget."""
    verdict = facts.choice.verdicts.get(facts.choice.winner)
    noisy = () if verdict is None or verdict.accuracy is None else verdict.accuracy.noisy
    return tuple(
        f"output '{name}' alone has an SQNR of {db:.1f} dB: larger outputs hide it from the metric"
        for name, db in noisy
    )


def _set_notes(facts: BuildFacts) -> tuple[str, ...]:
    """How outputs of the shipped engine were compared whose rows have no order of their own."""
    verdict = facts.choice.verdicts.get(facts.choice.winner)
    sets = () if verdict is None or verdict.accuracy is None else verdict.accuracy.sets
    return tuple(str(one) for one in sets)


def _guess_notes(facts: BuildFacts) -> tuple[str, ...]:
    """That the labels do not fit the float model, or its inputs are not what it was trained on."""
    checked = [verdict.accuracy for verdict in facts.choice.verdicts.values() if verdict.accuracy is not None]
    classes = class_count(facts.model.outputs)
    if not checked or checked[0].metric != "top1" or classes is None:
        return ()
    top1, samples = checked[0].float_score, checked[0].samples
    if not is_guessing(top1, samples, classes):
        return ()
    return (
        f"the float model's top1 of {top1:.4f} is no more than guessing among {classes} classes: are labels "
        "numbered as its outputs, and samples preprocessed as in training?",
    )


def _kept_float_notes(winner: Candidate) -> tuple[str, ...]:
    """How many layers ONNX Runtime is kept from computing in other precisions than the report says."""
    if not winner.kept_float:
        return ()
    first, count = winner.kept_float[0], len(winner.kept_float)
    which = f"'{first}' stays" if count == 1 else f"{count} layers, '{first}' the first, stay"
    return (f"{which} float between 8-bit ones: ONNX Runtime's WeightBiasQuantization is off in this engine",)


@without_collector()
def layer_rows(facts: BuildFacts) -> tuple[Layer, ...]:
    """One row per node of the canonical model, with the precision it was given and why.

    On a GPU the reason goes on with the tactic of the region that the node is in.
    """
    winner = facts.candidates[facts.choice.winner]
    tactics, attention = {}, {}
    if winner.spec.library == "cuda":
        tactics, attention = node_tactics(winner.model), coded_attention(winner.model)
    nodes = list(facts.model.graph.graph)
    reasons: Mapping[str, Decision] = {}
    codes: Mapping[str, str] = {}
    if winner.spec.precision == "int4":
        precision, codes = winner.spec.float_precision, {node.op_type: "int4" for node in nodes}
    elif winner.fitted is None:
        precision = winner.spec.precision
    else:
        target = winner.fitted.model.target
        codes = {node.op_type: target.precision_of(node.op_type) for node in nodes}
        precision = winner.spec.float_precision
        reasons = {row.node: row for row in winner.fitted.model.placement.decisions}
    rows = []
    for node in nodes:
        name = node.name or ""
        decision = reasons.get(name)
        reason = decision.reason if decision is not None else facts.choice.reason
        own = codes[node.op_type] if _is_in_codes(name, decision, facts) else precision
        if node.op_type in ATTENTION_PRODUCTS and name in attention:
            own, reason = attention[name], CODED_ATTENTION
        rows.append(
            Layer(
                name=name,
                op_type=node.op_type,
                precision=own,
                reason=f"{reason}; {tactics[name]}" if name in tactics else reason,
                sources=tuple(sources_of(node)),
            )
        )
    return tuple(rows)


def _is_in_codes(name: str, decision: Decision | None, facts: BuildFacts) -> bool:
    """Whether what is shipped computes a node in codes, or on a weight in 4 bits."""
    if facts.candidates[facts.choice.winner].spec.precision == "int4":
        return name in facts.int4_nodes
    return decision is not None and decision.is_int8


def _cache(facts: BuildFacts, match: CacheMatch, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What became of the calibration cache, with what its gaps cost."""
    float_nodes = {
        name: [row.node for row in found.fitted.model.placement.decisions if not row.is_int8]
        for name, found in facts.candidates.items()
        if found.fitted is not None
    }
    names = [node.name or "" for node in facts.model.graph.graph]
    times = missing_times(match.missing, rows, names, float_nodes)
    return describe_match(match, work_shares(facts.model), times)


def _order(facts: BuildFacts) -> list[str]:
    """Finalists by time, then the others."""
    timed = sorted(facts.latencies, key=lambda name: facts.latencies[name].median_ms)
    return [*timed, *(name for name in facts.candidates if name not in facts.latencies)]


def _candidate_row(facts: BuildFacts, name: str) -> dict[str, Any]:
    candidate = facts.candidates[name]
    latency = facts.latencies.get(name)
    verdict = facts.choice.verdicts.get(name, Verdict("passed over", "slower in the first heat"))
    return {
        "name": name,
        "library": candidate.spec.library,
        "precision": candidate.spec.precision,
        "float_precision": candidate.spec.float_precision,
        "status": verdict.status,
        "reason": verdict.reason,
        "size_bytes": candidate.model.size_bytes,
        "memory": facts.memory.get(name),
        "latency": None if latency is None else _latency(latency),
        "layer_times": facts.layer_times.get(name),
        "against_float": None if verdict.against_float is None else _paired(verdict.against_float),
        "accuracy": None if verdict.accuracy is None else _accuracy(verdict.accuracy),
        "range_method": None if candidate.fitted is None else candidate.fitted.method,
        "output_noise_ratios": None if candidate.fitted is None else _noise(candidate.fitted),
    }


def _latency(latency: Latency) -> dict[str, Any]:
    return {
        **latency.figures(20, 80, 95, 99),
        "runs": len(latency.samples_ms),
        "histogram": latency_bins(latency),
    }


def _tensors(facts: BuildFacts, winner: Candidate) -> dict[str, Any] | None:
    """Grid and histogram of every quantized activation; None for an engine without any."""
    if winner.fitted is None:
        return None
    table = tensor_table(winner.fitted.model.activations, facts.stats.tensors if facts.stats else {})
    wanted = facts.config.report.histograms
    is_small = len(json.dumps(table)) <= MOST_HISTOGRAM_RATIO * winner.model.size_bytes
    return table if wanted == "always" or (wanted == "auto" and is_small) else without_bins(table)


def _paired(pair: Paired) -> dict[str, float | int | None]:
    return {"ratio": pair.ratio, "lo": pair.lo, "hi": finite(pair.hi), "rounds": pair.rounds}


def _accuracy(accuracy: Accuracy) -> dict[str, Any]:
    found = asdict(accuracy) | {
        "noisy": {name: finite(db) for name, db in accuracy.noisy},
        "sets": [asdict(one) | {"outputs": list(one.outputs)} for one in accuracy.sets],
    }
    return {key: finite(value) if isinstance(value, float) else value for key, value in found.items()}


def _noise(fitted: Fitted) -> dict[str, float | None]:
    return {method: finite(ratio) for method, ratio in fitted.noise_ratios.items()}


def _calibration(facts: BuildFacts) -> dict[str, Any] | None:
    stats = facts.stats
    if stats is None:
        return None
    return {
        "samples": stats.samples,
        "data_hash": stats.data_hash,
        "is_random": stats.is_random,
        "tensors": len(stats.tensors),
        "notes": list(stats.notes),
    }
