# SPDX-License-Identifier: Apache-2.0
"""How an engine was built, JSON-ready: what was tried, measured, decided, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import Verdict
from quantrt.config import to_dict
from quantrt.ir.collector import without_collector
from quantrt.quantize.cache_match import CacheMatch
from quantrt.quantize.fit.fit import Fitted
from quantrt.report.built.chosen_shapes import TIMED_SHAPES
from quantrt.report.built.facts import BuildFacts
from quantrt.report.built.latency_bins import latency_bins
from quantrt.report.built.missing_times import missing_times
from quantrt.report.built.notes import build_notes
from quantrt.report.built.work_shares import work_shares
from quantrt.report.json_numbers import finite
from quantrt.report.ranges.bins import tensor_table, without_bins
from quantrt.report.ranges.cache import describe_match, missing_notes
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.timing import Latency, Paired

__all__ = ["build_report"]

REPORT_VERSION = 1

MOST_HISTOGRAM_RATIO = 0.01
"""Histograms that make an engine larger by more than this part are left out, unless they are asked for."""


@without_collector()
def build_report(facts: BuildFacts) -> dict[str, Any]:
    """The whole report; infinities and NaN become null."""
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
        "tensors": _tensors(facts, facts.winner),
        "notes": [*build_notes(facts), *([] if cache is None else missing_notes(cache))],
    }


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
