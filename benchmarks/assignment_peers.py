# SPDX-License-Identifier: Apache-2.0
"""A case of `benchmarks.assignment_cases` beside what other tools make of it: time, loss, and their search.

The peers are ONNX Runtime's static int8, `nncf.quantize`, and `nncf.quantize_with_accuracy_control`, which
puts layers back into floats until the same budget is kept. All get the same samples, are judged on the same
pictures, and are timed in turns with the engine that QuantRT ships.
"""

__all__ = ["beside_peers"]

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.assignment_cases import CALIBRATION, Case, Material, make_material
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
from benchmarks.task import rows
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig, CalibrationConfig
from quantrt.tactics.timing import Latency, compare_paired, time_interleaved

OURS = "quantrt"
FLOAT = "ort fp32"
TIMED = BenchConfig(duration_s=5.0, max_duration_s=20.0)


@dataclass(frozen=True)
class Tool:
    """One peer.

    Attributes:
        suffix: of its file.
        open: how it runs a file.
        make: writes the file; None for the float model as it is.
    """

    name: str
    suffix: str
    open: Callable[[Path], Runner]
    make: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Contender:
    """What is compared.

    Attributes:
        made_s, made_cpu_s: seconds that it took to make, and those that all cores computed meanwhile.
    """

    run: Callable[[Feed], Any]
    made_s: float | None = None
    made_cpu_s: float | None = None


def beside_peers(case: Case, *, pictures: int) -> dict[str, Any]:
    """One case: every contender's loss of top-1, time, and the time of the search for it.

    Args:
        pictures: that accuracy is measured on, by the tools too.
    """
    with TemporaryDirectory() as folder:
        material = make_material(case, Path(folder), pictures=pictures)
        feed = material.feed(case.batch)
        began, cpu_began = time.perf_counter(), _cpu_s()
        with build(
            material.path,
            config=_config(case),
            calibration=material.calibration,
            validation=material.validation,
        ) as engine:
            contenders = {OURS: Contender(engine.run, time.perf_counter() - began, _cpu_s() - cpu_began)}
            contenders |= {tool.name: _made(tool, material, Path(folder)) for tool in _tools(case, material)}
            runs = {name: partial(one.run, feed) for name, one in contenders.items()}
            latencies = time_interleaved(runs, TIMED)
            top1 = {name: _top1(one, material, case.batch) for name, one in contenders.items()}
            ships = engine.report["verdict"]["shipped"]
    found = {
        name: {
            "drop_ratio": (top1[FLOAT] - top1[name]) / top1[FLOAT],
            "made_s": one.made_s,
            "made_cpu_s": one.made_cpu_s,
            **_figures(latencies[name], latencies[OURS]),
        }
        for name, one in contenders.items()
    }
    return {"budget": case.max_drop_ratio, "pictures": pictures, "ships": ships, "contenders": found}


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
    yield Tool("ort int8", ".onnx", open_ort, partial(ort_int8, source, calibration=calibration))
    yield Tool("ort int8 u8s8", ".onnx", open_ort, partial(ort_int8_u8s8, source, calibration=calibration))
    nncf = partial(nncf_int8, source, calibration=calibration, is_transformer=material.is_transformer)
    yield Tool("nncf", ".xml", openvino, nncf)
    controlled = partial(
        nncf_accuracy_control,
        source,
        calibration=calibration,
        validation=samples,
        max_drop_ratio=case.max_drop_ratio,
        is_transformer=material.is_transformer,
    )
    yield Tool("nncf accuracy control", ".xml", openvino, controlled)


def _made(tool: Tool, material: Material, folder: Path) -> Contender:
    """The tool's model, made now and opened."""
    if tool.make is None:
        return Contender(tool.open(material.path).run)
    path = folder / f"{tool.name.replace(' ', '_')}{tool.suffix}"
    began, cpu_began = time.perf_counter(), _cpu_s()
    tool.make(path)
    made_s, made_cpu_s = time.perf_counter() - began, _cpu_s() - cpu_began
    return Contender(tool.open(path).run, made_s, made_cpu_s)


def _cpu_s() -> float:
    """Of this process and of its children that have ended, in user and system mode."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _top1(contender: Contender, material: Material, batch: int) -> float:
    """Over the pictures, in runs of the size that is timed; the last run is filled up."""
    labels = material.validation["labels"]
    count = -(-len(labels) // batch) * batch
    filled = {name: np.resize(array, (count, *array.shape[1:])) for name, array in material.inputs.items()}
    classes = [next(iter(contender.run(feed).values())).argmax(-1) for feed in rows(filled, batch)]
    return float(np.mean(np.concatenate(classes)[: len(labels)] == labels))


def _figures(latency: Latency, ours: Latency) -> dict[str, float]:
    """Milliseconds, and the time over that of QuantRT's engine, paired within rounds."""
    pair = compare_paired(latency, ours)
    return {"median_ms": latency.median_ms, "ratio": pair.ratio, "lo": pair.lo, "hi": min(pair.hi, 1e9)}
