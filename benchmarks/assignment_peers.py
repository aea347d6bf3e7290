# SPDX-License-Identifier: Apache-2.0
"""Cases of `benchmarks.assignment_cases` beside what other tools make of them: time, loss, and their search.

    python -m benchmarks.assignment_peers                    # every model as it is
    python -m benchmarks.assignment_peers vit --kept FOLDER  # what other tools made before is used again
    python -m benchmarks.assignment_peers vit --seconds      # times are those of the row that is there

The peers are ONNX Runtime's static int8, `nncf.quantize`, and `nncf.quantize_with_accuracy_control`, which
puts layers back into floats until the same budget is kept. All get the same samples, are judged on the same
pictures, and are timed in turns with the engine that QuantRT ships. With `--kept`, what the tools lose and
what their search took is measured once, and the engine and all times every time. With `--seconds` the engine
is made and judged, and not timed beside them: for a machine that others use.
"""

__all__ = ["beside_peers"]

import argparse
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.assignment_cases import CALIBRATION, CASES, PICTURES, Case, Material, make_material
from benchmarks.assignment_peers_page import (
    CONTROL,
    FLOAT,
    OURS,
    QUANTIZING,
    READING,
    peers_page,
    run_of,
    runs_of,
)
from benchmarks.contenders import limited
from benchmarks.inputs import Feed
from benchmarks.peers import (
    Runner,
    nncf_accuracy_control,
    nncf_int8,
    open_openvino,
    open_ort,
    ort_int8,
    ort_int8_u8s8,
)
from benchmarks.record import commit, load_results, write_results
from benchmarks.stage_seconds import StageSeconds
from benchmarks.task import rows
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig, CalibrationConfig
from quantrt.tactics.idle_threads import wait_for_sleep
from quantrt.tactics.timing import compare_paired, time_interleaved

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "assignment-peers-cpu.json"
LIMIT_S = 200
"""Processor seconds that a tool may take for one model."""

TIMED = BenchConfig(duration_s=3.0, max_duration_s=8.0)

LIBRARIES = ("onnxruntime", "onnxruntime.quantization", "openvino", "nncf")
"""Imported before anything is measured: the seconds that it takes are those of no search."""


@dataclass(frozen=True)
class Tool:
    """One peer.

    Attributes:
        suffix: of its file.
        open: how it runs a file.
        make: writes the file, and tells of its stages; None for the float model as it is.
    """

    name: str
    suffix: str
    open: Callable[[Path], Runner]
    make: Callable[[Path, StageSeconds], None] | None = None


@dataclass(frozen=True)
class Contender:
    """What is compared.

    Attributes:
        run: None where its tool was not done within the limit.
        made: what it took to make; see StageSeconds.figures.
    """

    run: Callable[[Feed], Any] | None
    made: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Measure the cases that are named, or all that nothing was planted in."""
    real = [name for name, case in CASES.items() if case.plant is None]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assignment_peers")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--pictures", type=int, default=PICTURES, help="that accuracy is measured on")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="of what other tools made")
    parser.add_argument("--seconds", action="store_true", help="keep the times of the row that is there")
    parser.add_argument(
        "--beside", type=Path, nargs="*", default=[], metavar="FILE", help="of other runs, to be told of too"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out)
    for library in LIBRARIES:
        importlib.import_module(library)
    for name in args.cases or real:
        busy = os.getloadavg()[0]
        with TemporaryDirectory() as temporary:
            folder = Path(temporary) if args.kept is None else args.kept / name
            folder.mkdir(parents=True, exist_ok=True)
            earlier = results["models"].get(name, {})
            timed = earlier if args.seconds and earlier else None
            row = beside_peers(CASES[name], folder, pictures=args.pictures, timed=timed)
        row = {"commit": commit(), "load_before": busy, **row}
        others = [run for path in args.beside for run in runs_of(load_results(path), name)]
        results["models"][name] = {**row, "runs": [*others, *runs_of(results, name), run_of(row)]}
        write_results(args.out, results, peers_page(results))
        print(name, row, flush=True)


def beside_peers(
    case: Case, folder: Path, *, pictures: int, timed: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One case: every contender's loss of top-1, time, and the time of the search for it.

    Args:
        folder: of the tools' models, and of their figures where some are there.
        pictures: that accuracy is measured on, by the tools too.
        timed: an earlier row, whose times are kept where the same engine is shipped.
    """
    material = make_material(case, folder, pictures=pictures)
    clock = StageSeconds(READING)
    with build(
        material.path,
        config=_config(case),
        calibration=material.calibration,
        validation=material.validation,
        on_event=clock,
    ) as engine:
        contenders = {OURS: Contender(engine.run, clock.figures())}
        contenders |= {tool.name: _made(tool, material, folder) for tool in _tools(case, material)}
        runs = {name: one.run for name, one in contenders.items() if one.run is not None}
        top1 = {name: _judged(name, run, material, folder, case.batch) for name, run in runs.items()}
        verdict = engine.report["verdict"]
        earlier = timed if timed is not None and timed["ships"] == verdict["shipped"] else None
        times = _times(runs, material.feed(case.batch)) if earlier is None else _earlier_times(earlier)
    found = {
        name: one.made
        if one.run is None
        else {"drop_ratio": (top1[FLOAT] - top1[name]) / top1[FLOAT], **one.made, **times[name]}
        for name, one in contenders.items()
    }
    return {
        "budget": case.max_drop_ratio,
        "pictures": pictures,
        "ships": verdict["shipped"],
        "why": verdict["reason"],
        "float_samples": _float_samples(engine.report),
        "timed_commit": commit() if earlier is None else earlier.get("timed_commit", earlier["commit"]),
        "contenders": found,
    }


def _float_samples(report: Mapping[str, Any]) -> int | None:
    """Pictures that FP32 ran on, to tell the drop of what is shipped; None where that is FP32."""
    accuracies = (row["accuracy"] for row in report["candidates"] if row["status"] == "shipped")
    return next((one["float_samples"] for one in accuracies if one is not None), None)


def _config(case: Case) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        calibration=CalibrationConfig(max_samples=CALIBRATION),
        budget=Budget(metric="top1", max_drop_ratio=case.max_drop_ratio),
        bench=BenchConfig(batch=case.batch),
    )


def _tools(case: Case, material: Material) -> Iterator[Tool]:
    source, calibration = material.path, material.calibration
    shapes = {name: array.shape for name, array in material.feed(case.batch).items()}
    openvino = partial(open_openvino, precision=None, shapes=shapes)
    samples = list(zip(rows(material.inputs, 1), map(int, material.validation["labels"]), strict=True))
    yield Tool(FLOAT, ".onnx", open_ort)
    yield Tool("openvino fp32", ".onnx", openvino)
    for name, quantize in (("ort int8", ort_int8), ("ort int8 u8s8", ort_int8_u8s8)):
        yield Tool(name, ".onnx", open_ort, _in_one(partial(quantize, source, calibration=calibration)))
    nncf = partial(nncf_int8, source, calibration=calibration, is_transformer=material.is_transformer)
    yield Tool("nncf", ".xml", openvino, _in_one(nncf))

    def control(path: Path, clock: StageSeconds) -> None:
        nncf_accuracy_control(
            source,
            path,
            calibration,
            samples,
            max_drop_ratio=case.max_drop_ratio,
            is_transformer=material.is_transformer,
            on_stage=clock.begin,
        )

    yield Tool(CONTROL, ".xml", openvino, control)


def _in_one(make: Callable[[Path], None]) -> Callable[[Path, StageSeconds], None]:
    """What quantizes and does nothing else."""
    return lambda path, clock: make(path)


def _made(tool: Tool, material: Material, folder: Path) -> Contender:
    """The tool's model, made now or before, and opened."""
    if tool.make is None:
        return Contender(tool.open(material.path).run)
    path = folder / f"{_file_name(tool.name)}{tool.suffix}"
    kept = _kept(tool.name, folder)
    if "stages_cpu_s" not in kept:
        clock = StageSeconds(QUANTIZING)
        try:
            with limited(LIMIT_S):
                tool.make(path, clock)
        except RuntimeError as error:
            print(f"{tool.name}: {error}", flush=True)
        kept = {"commit": commit(), **clock.figures()}
        _keep(tool.name, folder, kept)
    run = tool.open(path).run if path.exists() else None
    return Contender(run, {key: kept[key] for key in ("made_s", "made_cpu_s", "stages_cpu_s")})


def _judged(name: str, run: Callable[[Feed], Any], material: Material, folder: Path, batch: int) -> float:
    """Its top-1, measured now or, of another tool, before."""
    kept = _kept(name, folder)
    if name == OURS:
        return _top1(run, material, batch)
    if kept.get("pictures") != len(material.validation["labels"]):
        kept |= {"top1": _top1(run, material, batch), "pictures": len(material.validation["labels"])}
        _keep(name, folder, kept)
    return float(kept["top1"])


def _kept(name: str, folder: Path) -> dict[str, Any]:
    """Figures of a tool, as far as they were measured here before."""
    path = folder / f"{_file_name(name)}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _keep(name: str, folder: Path, figures: dict[str, Any]) -> None:
    (folder / f"{_file_name(name)}.json").write_text(json.dumps(figures))


def _file_name(name: str) -> str:
    return name.replace(" ", "_")


def _top1(run: Callable[[Feed], Any], material: Material, batch: int) -> float:
    """Over the pictures, in runs of the size that is timed; the last run is filled up."""
    labels = material.validation["labels"]
    count = -(-len(labels) // batch) * batch
    filled = {name: np.resize(array, (count, *array.shape[1:])) for name, array in material.inputs.items()}
    classes = [next(iter(run(feed).values())).argmax(-1) for feed in rows(filled, batch)]
    return float(np.mean(np.concatenate(classes)[: len(labels)] == labels))


def _times(runs: dict[str, Callable[[Feed], Any]], feed: Feed) -> dict[str, dict[str, float]]:
    """By contender: milliseconds, and the time over that of QuantRT's engine, paired within rounds."""
    timed = {name: partial(run, feed) for name, run in runs.items()}
    latencies = time_interleaved(timed, TIMED, before_turn=wait_for_sleep)
    pairs = {name: compare_paired(latency, latencies[OURS]) for name, latency in latencies.items()}
    return {
        name: {
            "median_ms": latencies[name].median_ms,
            "ratio": pair.ratio,
            "lo": pair.lo,
            "hi": min(pair.hi, 1e9),
        }
        for name, pair in pairs.items()
    }


def _earlier_times(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The same as they were measured before."""
    return {
        name: {key: one[key] for key in ("median_ms", "ratio", "lo", "hi")}
        for name, one in row["contenders"].items()
        if "median_ms" in one
    }


if __name__ == "__main__":
    main()
