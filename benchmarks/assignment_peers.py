# SPDX-License-Identifier: Apache-2.0
"""Trained models beside what other tools make of them: time, loss, and what their search takes.

    python -m benchmarks.assignment_peers                    # every model
    python -m benchmarks.assignment_peers vit --kept FOLDER  # what other tools made before is used again
    python -m benchmarks.assignment_peers vit --seconds      # times are those of the row that is there

They are those of `benchmarks.peer_cases`. The peers are ONNX Runtime's static int8, `nncf.quantize`, and
`nncf.quantize_with_accuracy_control`, which puts layers back into floats until the same budget is kept. All
get the same samples, are judged on the same samples, and are timed in turns with the engine that QuantRT
ships. With `--kept`, what the tools lose and what their search took is measured once, and the engine and all
times every time. With `--seconds` the engine is made and judged, and not timed beside them: for a machine
that others use; with `--tools` the tools' models alone are made and judged.
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

from benchmarks.assignment_cases import CALIBRATION, PICTURES
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
from benchmarks.peer_cases import METRICS, PEER_CASES, PeerCase, PeerMaterial, Run, make_peer_material
from benchmarks.peers.contenders import limited
from benchmarks.peers.peers import (
    Runner,
    nncf_accuracy_control,
    nncf_int8,
    open_openvino,
    open_ort,
    ort_int8,
    ort_int8_u8s8,
)
from benchmarks.record import commit, load_results, other_machine, write_results
from benchmarks.stage_seconds import StageSeconds
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.judge import TOOL_ERRORS, reason
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
        open: how it runs a file, where all inputs have the shapes given; None for any shapes.
        make: writes the file, and tells of its stages; None for the float model as it is.
    """

    name: str
    suffix: str
    open: Callable[[Path, dict[str, tuple[int, ...]] | None], Runner]
    make: Callable[[Path, StageSeconds], None] | None = None


@dataclass(frozen=True)
class Contender:
    """What is compared.

    Attributes:
        run: with the inputs that are timed; None where its tool failed, or was not done within the limit.
        judged: the same with those that it is judged on.
        made: what it took to make; see StageSeconds.figures. An "error" says why it failed.
    """

    run: Run | None
    judged: Run | None
    made: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Measure the cases that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assignment_peers")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(PEER_CASES))
    parser.add_argument("--pictures", type=int, default=PICTURES, help="that accuracy is measured on")
    parser.add_argument(
        "--models", type=Path, default=Path(), help="folder that benchmarks.models filled, for the text model"
    )
    parser.add_argument(
        "--tools", action="store_true", help="make and judge what other tools make, into --kept"
    )
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="of what other tools made")
    parser.add_argument("--seconds", action="store_true", help="keep the times of the row that is there")
    parser.add_argument(
        "--beside", type=Path, nargs="*", default=[], metavar="FILE", help="of other runs, to be told of too"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out, any_machine=True)
    for library in LIBRARIES:
        importlib.import_module(library)
    for name in args.cases or PEER_CASES:
        busy = os.getloadavg()[0]
        case = PEER_CASES[name]
        material = make_peer_material(case, args.models, pictures=args.pictures)
        with TemporaryDirectory() as temporary:
            folder = Path(temporary) if args.kept is None else args.kept / name
            folder.mkdir(parents=True, exist_ok=True)
            if args.tools:
                for tool in _tools(case, material):
                    print(
                        name,
                        tool.name,
                        _judged(tool.name, _made(tool, case, material, folder), material, folder),
                    )
                continue
            earlier = results["models"].get(name, {})
            timed = earlier if args.seconds and earlier else None
            row = beside_peers(case, material, folder, timed=timed)
        row = {"commit": commit(), "load_before": busy, **row, **other_machine(results)}
        others = [run for path in args.beside for run in runs_of(load_results(path), name)]
        results["models"][name] = {**row, "runs": [*others, *runs_of(results, name), run_of(row)]}
        order = [one for one in PEER_CASES if one in results["models"]]
        results["models"] = {one: results["models"][one] for one in order}
        write_results(args.out, results, peers_page(results))
        print(name, row, flush=True)


def beside_peers(
    case: PeerCase, material: PeerMaterial, folder: Path, *, timed: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One case: every contender's loss, time, and the time of the search for it.

    Args:
        folder: of the tools' models, and of their figures where some are there.
        timed: an earlier row, whose times are kept where the same engine is shipped.
    """
    clock = StageSeconds(READING)
    with build(
        material.path,
        config=_config(case),
        calibration=material.calibration,
        validation=material.validation,
        on_event=clock,
    ) as engine:
        contenders = {OURS: Contender(engine.run, engine.run, clock.figures())}
        contenders |= {tool.name: _made(tool, case, material, folder) for tool in _tools(case, material)}
        scores = {name: _judged(name, one, material, folder) for name, one in contenders.items()}
        runs = {name: one.run for name, one in contenders.items() if one.run is not None}
        verdict = engine.report["verdict"]
        earlier = timed if timed is not None and timed["ships"] == verdict["shipped"] else None
        times = _times(runs, material.feed(case.batch)) if earlier is None else _earlier_times(earlier)
    found = {
        name: one.made
        if scores[name] is None
        else {"drop_ratio": _drop(scores, name), **one.made, **times[name]}
        for name, one in contenders.items()
    }
    return {
        "budget": case.max_drop_ratio,
        "budget_of": case.budget_of,
        "samples": len(material.samples),
        "ships": verdict["shipped"],
        "why": verdict["reason"],
        "float_samples": _float_samples(engine.report),
        "timed_commit": commit() if earlier is None else earlier.get("timed_commit", earlier["commit"]),
        "contenders": found,
    }


def _drop(scores: Mapping[str, float | None], name: str) -> float:
    """The part of the float model's score that another has less."""
    floats, score = scores[FLOAT], scores[name]
    if floats is None or score is None:
        raise RuntimeError(f"there is no score to compare: {FLOAT} has {floats}, {name} has {score}")
    return (floats - score) / floats


def _float_samples(report: Mapping[str, Any]) -> int | None:
    """Pictures that FP32 ran on, to tell the drop of what is shipped; None where that is FP32."""
    accuracies = (row["accuracy"] for row in report["candidates"] if row["status"] == "shipped")
    return next((one["float_samples"] for one in accuracies if one is not None), None)


def _config(case: PeerCase) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        calibration=CalibrationConfig(max_samples=CALIBRATION),
        budget=Budget(metric=METRICS[case.budget_of], max_drop_ratio=case.max_drop_ratio),
        bench=BenchConfig(batch=case.batch),
    )


def _tools(case: PeerCase, material: PeerMaterial) -> Iterator[Tool]:
    source, calibration = material.path, material.calibration
    yield Tool(FLOAT, ".onnx", _open_ort)
    yield Tool("openvino fp32", ".onnx", _open_openvino)
    for name, quantize in (("ort int8", ort_int8), ("ort int8 u8s8", ort_int8_u8s8)):
        yield Tool(name, ".onnx", _open_ort, _in_one(partial(quantize, source, calibration=calibration)))
    nncf = partial(nncf_int8, source, calibration=calibration, is_transformer=material.is_transformer)
    yield Tool("nncf", ".xml", _open_openvino, _in_one(nncf))

    def control(path: Path, clock: StageSeconds) -> None:
        nncf_accuracy_control(
            source,
            path,
            calibration,
            material.samples,
            max_drop_ratio=case.max_drop_ratio,
            is_transformer=material.is_transformer,
            hit=material.hit,
            score=material.score_of,
            on_stage=clock.begin,
        )

    yield Tool(CONTROL, ".xml", _open_openvino, control)


def _open_ort(path: Path, shapes: dict[str, tuple[int, ...]] | None) -> Runner:
    """It takes any shapes, whatever they are."""
    return open_ort(path)


def _open_openvino(path: Path, shapes: dict[str, tuple[int, ...]] | None) -> Runner:
    return open_openvino(path, precision=None, shapes=shapes)


def _in_one(make: Callable[[Path], None]) -> Callable[[Path, StageSeconds], None]:
    """What quantizes and does nothing else."""
    return lambda path, clock: make(path)


def _made(tool: Tool, case: PeerCase, material: PeerMaterial, folder: Path) -> Contender:
    """The tool's model, made now or before, and opened."""
    path, made = material.path, dict[str, Any]()
    if tool.make is not None:
        path = folder / f"{_file_name(tool.name)}{tool.suffix}"
        made = _make_once(tool, tool.make, path, folder)
    if "error" in made or not path.exists():
        return Contender(None, None, made)
    shapes = {name: np.shape(array) for name, array in material.feed(case.batch).items()}
    try:
        run = tool.open(path, shapes).run
        return Contender(run, run if material.has_one_shape else tool.open(path, None).run, made)
    except TOOL_ERRORS as error:
        return Contender(None, None, {**made, "error": reason(error)})


def _make_once(
    tool: Tool, make: Callable[[Path, StageSeconds], None], path: Path, folder: Path
) -> dict[str, Any]:
    """What it took to make a tool's model, now or before; with the reason where that failed."""
    kept = _kept(tool.name, folder)
    if "stages_cpu_s" not in kept:
        clock = StageSeconds(QUANTIZING)
        failed = {}
        try:
            with limited(LIMIT_S):
                make(path, clock)
        except TOOL_ERRORS as error:
            failed = {"error": reason(error)}
            print(f"{tool.name}: {failed['error']}", flush=True)
        kept = {"commit": commit(), **clock.figures(), **failed}
        _keep(tool.name, folder, kept)
    return {key: kept[key] for key in ("made_s", "made_cpu_s", "stages_cpu_s", "error") if key in kept}


def _judged(name: str, contender: Contender, material: PeerMaterial, folder: Path) -> float | None:
    """Its score, measured now or, of another tool, before; None of what there is not."""
    if contender.judged is None:
        return None
    if name == OURS:
        return material.score(contender.judged)
    kept, samples = _kept(name, folder), len(material.samples)
    score = kept.get("score", kept.get("top1"))
    if score is None or kept.get("samples", kept.get("pictures")) != samples:
        score = material.score(contender.judged)
        _keep(name, folder, {**kept, "score": score, "samples": samples})
    return float(score)


def _kept(name: str, folder: Path) -> dict[str, Any]:
    """Figures of a tool, as far as they were measured here before."""
    path = folder / f"{_file_name(name)}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _keep(name: str, folder: Path, figures: dict[str, Any]) -> None:
    (folder / f"{_file_name(name)}.json").write_text(json.dumps(figures))


def _file_name(name: str) -> str:
    return name.replace(" ", "_")


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
