# SPDX-License-Identifier: Apache-2.0
"""Latency of QuantRT's engines against the peers: `python -m benchmarks.latency MODELS [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled; the peers' quantized files are kept in its subfolder
quantized/. For each model and batch, engines are built for that batch, all peers run a short heat, and the
engines and the fastest peers are then timed in turns in one process on the same input. The ratio is the
median over rounds of the fastest peer's time over the engine's, with its 99 % interval: above 1 the engine
is faster. A row whose interval is wide is measured again. A second run adds its models to the
results, and rows of another machine name it.
"""

__all__ = ["measure_row"]

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.latency import latency_page
from benchmarks.peers.latency import CALIBRATION_SAMPLES, CALIBRATION_SEED, open_peers
from benchmarks.record import commit, load_results, other_machine, write_results
from benchmarks.tasks.inputs import MODEL_NAMES, Feed, make_inputs
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig
from quantrt.reference.metrics import Error
from quantrt.runtime.engine import Engine
from quantrt.tactics.timing import Latency, compare_paired, time_interleaved

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "latency-cpu.json"
BATCHES = (1, 8)
ENGINES = {"int8": frozenset({"fp32", "int8"}), "int8+bf16": frozenset({"fp32", "bf16", "int8"})}

BUILD = BenchConfig(warmup_s=0.3, duration_s=2.0, max_duration_s=20.0)
HEAT = BenchConfig(warmup_s=0.2, duration_s=0.6, max_duration_s=0.6, min_runs=6)
FINAL = BenchConfig(warmup_s=0.3, duration_s=6.0, max_duration_s=12.0, min_runs=45)
FINALISTS = 3
"""Peers that are timed together with the engines, besides the fastest FP32 one."""

WIDE_RATIO = 0.05
"""A row is repeated when the interval of an engine's ratio is wider than this part of it."""
ATTEMPTS = 3

ANY_DROP = 1.0
"""Engines are timed whatever they lose, as the peers are; `benchmarks.accuracy` measures what that is."""

Runs = Mapping[str, Callable[[], object]]


def main() -> None:
    args = _parser().parse_args()
    results = load_results(args.out, any_machine=True)
    for name in args.names:
        for batch in args.batch:
            row = measure_row(args.models / f"{name}.onnx", batch) | other_machine(results)
            rows = results["models"].setdefault(name, {})
            rows[str(batch)] = row
            write_results(args.out, results, latency_page(results))
            _print(name, batch, row)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Latency of QuantRT's engines against the peers.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("names", nargs="*", default=MODEL_NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--batch", type=int, nargs="*", default=BATCHES, help="default: 1 and 8")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; tables go beside it")
    return parser


def measure_row(path: Path, batch: int) -> dict[str, Any]:
    """One model at one batch: every engine against the fastest peer and the fastest FP32 peer."""
    start = time.perf_counter()
    feed = make_inputs(path.stem, batch, seed=batch)
    engines = _build_engines(path, batch)
    peers = open_peers(path, feed)
    heat = time_interleaved({name: peer.run for name, peer in peers.items()}, HEAT)
    order = sorted(heat, key=lambda name: heat[name].median_ms)
    fp32 = next(name for name in order if peers[name].is_fp32)
    finalists = [fp32, *[name for name in order if name != fp32][:FINALISTS]]
    distinct = {_identity(engine): engine for engine in engines.values()}
    runs: dict[str, Callable[[], object]] = {name: peers[name].run for name in finalists}
    runs |= {identity: _runner(engine, feed) for identity, engine in distinct.items()}
    latencies, attempts = _time(runs, finalists, set(distinct))
    reference = peers["ort fp32"].outputs()
    row = {
        "commit": commit(),
        "peers": {name: _figures(heat[name], latencies.get(name)) for name in order},
        "peer_sqnr_db": {name: _sqnr_db(reference, peers[name].outputs()) for name in finalists},
        "engines": {
            name: _engine_row(engine, latencies, finalists, fp32)
            | {"sqnr_db": _sqnr_db(reference, engine.run(feed))}
            for name, engine in engines.items()
        },
        "attempts": attempts,
        "seconds": time.perf_counter() - start,
    }
    for engine in engines.values():
        engine.close()
    return row


def _build_engines(path: Path, batch: int) -> dict[str, Engine]:
    seeds = range(CALIBRATION_SEED, CALIBRATION_SEED + CALIBRATION_SAMPLES)
    calibration = [make_inputs(path.stem, 1, seed) for seed in seeds]
    budget = Budget(max_drop_ratio=ANY_DROP)
    bench = BenchConfig(
        batch=batch,
        warmup_s=BUILD.warmup_s,
        duration_s=BUILD.duration_s,
        max_duration_s=BUILD.max_duration_s,
    )
    return {
        name: build(
            path,
            config=BuildConfig(precisions=precisions, budget=budget, bench=bench),
            calibration=calibration,
        )
        for name, precisions in ENGINES.items()
    }


def _identity(engine: Engine) -> str:
    """Equal for engines that would be timed twice for nothing."""
    return f"quantrt {engine.report['verdict']['shipped']}"


def _runner(engine: Engine, feed: Feed) -> Callable[[], object]:
    return lambda: engine.run(feed)


def _time(runs: Runs, peers: list[str], engines: set[str]) -> tuple[dict[str, Latency], int]:
    """The attempt with the narrowest intervals, and how many there were."""
    best: tuple[float, dict[str, Latency]] | None = None
    for attempt in range(1, ATTEMPTS + 1):
        latencies = time_interleaved(runs, FINAL, seed=attempt)
        pairs = [compare_paired(latencies[_fastest(latencies, peers)], latencies[name]) for name in engines]
        width = max((pair.hi - pair.lo) / pair.ratio for pair in pairs)
        if best is None or width < best[0]:
            best = (width, latencies)
        if width <= WIDE_RATIO:
            break
    assert best is not None
    return best[1], attempt


def _fastest(latencies: Mapping[str, Latency], names: list[str]) -> str:
    return min(names, key=lambda name: latencies[name].median_ms)


def _engine_row(
    engine: Engine, latencies: Mapping[str, Latency], peers: list[str], fp32: str
) -> dict[str, Any]:
    ours = latencies[_identity(engine)]
    fastest = _fastest(latencies, peers)
    return {
        "shipped": engine.report["verdict"],
        "candidates": engine.report["candidates"],
        "size_bytes": engine.plan.model.size_bytes,
        "latency": _latency(ours),
        "fastest_peer": fastest,
        "ratio": _paired(latencies[fastest], ours),
        "fp32_peer": fp32,
        "ratio_to_fp32": _paired(latencies[fp32], ours),
    }


def _paired(peer: Latency, ours: Latency) -> dict[str, float]:
    pair = compare_paired(peer, ours)
    return {"ratio": pair.ratio, "lo": pair.lo, "hi": min(pair.hi, 1e9), "rounds": pair.rounds}


def _figures(heat: Latency, final: Latency | None) -> dict[str, Any]:
    return {"heat_ms": heat.median_ms, "final": None if final is None else _latency(final)}


def _latency(latency: Latency) -> dict[str, float]:
    return {
        "median_ms": latency.median_ms,
        "p20_ms": latency.p(0.2),
        "p80_ms": latency.p(0.8),
        "runs": len(latency.samples_ms),
    }


def _sqnr_db(reference: Mapping[str, Any], got: Mapping[str, Any]) -> float:
    error = Error()
    for name, array in reference.items():
        error.add(np.asarray(array), np.asarray(got[name]))
    return min(error.sqnr_db, 999.0)


def _print(name: str, batch: int, row: dict[str, Any]) -> None:
    for peer, figures in row["peers"].items():
        final = figures["final"]
        text = "" if final is None else f"final {final['median_ms']:8.2f} ms"
        print(f"{name} batch {batch}: {peer:32} heat {figures['heat_ms']:8.2f} ms {text}")
    for kind, engine in row["engines"].items():
        pair, float_pair = engine["ratio"], engine["ratio_to_fp32"]
        print(
            f"{name} batch {batch}: QuantRT {kind:10} ({engine['shipped']['shipped']}) "
            f"{engine['latency']['median_ms']:8.2f} ms, {pair['ratio']:.3f}x "
            f"[{pair['lo']:.3f}, {pair['hi']:.3f}] of {engine['fastest_peer']}, "
            f"{float_pair['ratio']:.2f}x of {engine['fp32_peer']}; SQNR {engine['sqnr_db']:.1f} dB"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
