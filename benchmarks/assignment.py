# SPDX-License-Identifier: Apache-2.0
"""Mixed precision on a CPU: all of int8, mixed and float; real models, some made to break under int8.

    python -m benchmarks.assignment                  # every case, into docs/results/assignment-cpu.{json,md}
    python -m benchmarks.assignment vit-outliers     # some; the results of the others are kept
    python -m benchmarks.assignment --solver         # only the time of the solver on a large problem

One build per case: its candidates are timed in the same rounds and judged on the same pictures. The rank
correlation is of every region's damage, on 16 calibration samples, with how far the class probabilities move
(Kullback-Leibler divergence) on pictures that no calibration saw when that region alone is quantized.
"""

__all__ = ["rank_correlation", "run"]

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.assignment_cases import CALIBRATION, CASES, PICTURES, Case, Material, make_material
from benchmarks.assignment_page import assignment_page
from benchmarks.record import commit, load_results, write_results
from quantrt.assign.solve import Boundary, Problem, solve
from quantrt.assign.tables.tables import Tables, tables_from_json
from quantrt.build import build
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import AssignConfig, BenchConfig, Budget, BuildConfig, CalibrationConfig
from quantrt.device import describe_device
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.prepare import Job, quantize_for_device
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.write import write

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "assignment-cpu.json"

JUDGED = 256
"""Pictures on which one region at a time is judged."""


def main() -> None:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assignment")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--pictures", type=int, default=PICTURES, help="that accuracy is measured on")
    parser.add_argument("--solver", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    if args.solver:
        print(f"1,000 regions, 4 precisions: {solver_seconds():.2f} s")
        return
    results = load_results(args.out)
    results["solver_s"] = solver_seconds()
    for name in args.cases or CASES:
        row = {"commit": commit(), **run(CASES[name], pictures=args.pictures)}
        results["models"][name] = row
        write_results(args.out, results, assignment_page(results))
        print(name, row)


def run(case: Case, *, pictures: int = PICTURES) -> dict[str, Any]:
    """One build, and the rank correlation of its damages."""
    with TemporaryDirectory() as folder:
        material = make_material(case, Path(folder), pictures=pictures)
        config = BuildConfig(
            precisions=frozenset({"fp32", "int8"}),
            calibration=CalibrationConfig(max_samples=CALIBRATION),
            budget=Budget(metric="top1", max_drop_ratio=case.max_drop_ratio),
            bench=BenchConfig(batch=case.batch),
            assign=AssignConfig(tables=str(Path(folder) / "tables.json")),
        )
        begin = time.perf_counter()
        engine = build(
            material.path, config=config, calibration=material.calibration, validation=material.validation
        )
        seconds = time.perf_counter() - begin
        report = engine.plan.report
        engine.close()
        tables = tables_from_json(report["mixed"]["tables"], case.task)
        correlation = rank_correlation(material, tables, config)
    return {
        "budget": case.max_drop_ratio,
        "build_s": seconds,
        "verdict": report["verdict"],
        "candidates": report["candidates"],
        "rounds": report["mixed"]["rounds"],
        "reason": report["mixed"]["reason"],
        "regions": [
            {"name": region.name, "damage": tables.damages[region.name]["int8"]} for region in tables.regions
        ],
        "rank_correlation": correlation,
    }


def rank_correlation(material: Material, tables: Tables, config: BuildConfig) -> float:
    """Spearman's, of damages with the divergence of class probabilities, one region quantized at a time."""
    model, pictures = load_model(material.path), material.validation["input"][-JUDGED:]
    job = Job(model, config, describe_device(), lambda event: None)
    quantized = quantize_for_device(job, open_dataset(material.calibration, model.inputs), None)
    fitted = quantized.fits[tables.library, "int8"]
    wanted = _probabilities(float_session(model.graph), pictures)
    moved = []
    for region in tables.regions:
        kept = {node: "" for other in tables.regions if other != region for node in other.nodes}
        session = float_session(write(keep_float(fitted, kept, config.quantize).model))
        got = _probabilities(session, pictures)
        moved.append(float(np.mean(np.sum(wanted * np.log(wanted / got), axis=1))))
    damages = [tables.damages[region.name]["int8"] for region in tables.regions]
    return float(spearmanr(damages, moved).statistic)


def _probabilities(session: Any, pictures: np.ndarray) -> np.ndarray:
    name = session.get_inputs()[0].name
    parts = [session.run(None, {name: pictures[at : at + 32]})[0] for at in range(0, len(pictures), 32)]
    logits = np.concatenate(parts).astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(np.maximum(powers / powers.sum(axis=1, keepdims=True), 1e-12))


def solver_seconds() -> float:
    """Of a made-up problem: 1,000 regions in a chain with shortcuts, 4 precisions."""
    random = np.random.default_rng(0)
    names, speeds, noises = ("fp32", "fp16", "fp8", "int8"), (1, 0.55, 0.35, 0.3), (0, 1e-6, 3e-4, 1e-4)
    times, damages = random.lognormal(0, 1, 1000), random.lognormal(0, 1.5, 1000)
    costs = [dict(zip(names, t * np.array(speeds) * random.uniform(0.8, 1.3, 4), strict=True)) for t in times]
    limited = [dict(zip(names, np.multiply(d, noises), strict=True)) for d in damages]
    boundaries = []
    for place in range(1, 1000):
        near = int(random.integers(max(0, place - 12), place))
        for other in {place - 1, near}:
            cost = float(times[place] * random.uniform(0.05, 0.15))
            pairs = {(p, q): cost for p in names for q in names if p != q}
            boundaries.append(Boundary(other, place, pairs))
    limit = 0.3 * sum(row["int8"] for row in limited)
    begin = time.perf_counter()
    solve(Problem(costs, limited, limit, boundaries))
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
