# SPDX-License-Identifier: Apache-2.0
"""What a whole build of a large network takes: the first, one more with its timing cache, and loading.

    python -m benchmarks.diffusion_builds FOLDER int8@3 --device-memory 24000

FOLDER is that of `benchmarks.diffusion`, after its steps `graph`, `weights` and `ranges`. Each of the three
is a process of its own, timed from its start to its end: Python's imports, reading and hashing the weights,
building and writing the engine are in it. Rows go to FOLDER/BUILDS.json: seconds of the process and of its
parts, the most memory of the host, of the GPU the most that was in use and the most that torch had reserved.
"""

__all__ = ["main"]

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import quantrt
from benchmarks.diffusion import GRAPH, RANGES, config_of, options, record
from quantrt.calibrate.stats import load_stats
from quantrt.ir.collector import leave_cycles
from quantrt.model.load import load_model
from quantrt.prepare import Event
from quantrt.runtime.peak_memory import peak_memory

FILE = "BUILDS.json"
CACHES = "builds.json"
"""Of the timing cache, and of what is kept beside it."""

STEPS = ("first", "again", "load")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What whole builds take.")
    options(parser)
    parser.add_argument("--step", choices=STEPS, help="in this process, with its row on standard output")
    args = parser.parse_args(arguments)
    if args.step is not None:
        print(json.dumps(_load(args) if args.step == "load" else _build(args)))
        leave_cycles()  # as the command line does
        return
    for name in args.engines:
        for path in args.folder.glob(f"{CACHES}*"):
            path.unlink()
        for step in STEPS:
            record(args, f"{step} {name}", _in_process(args, name, step), file=FILE)


def _in_process(args: argparse.Namespace, name: str, step: str) -> dict[str, Any]:
    """The row of a step, and the seconds of its process."""
    given = [str(args.folder), name, "--step", step, "--net", args.net, "--device", args.device]
    given += ["--level", str(args.level)]
    given += [] if args.device_memory is None else ["--device-memory", str(args.device_memory)]
    began = time.perf_counter()
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.diffusion_builds", *given], stdout=subprocess.PIPE, check=False
    )
    process_s = time.perf_counter() - began
    if found.returncode:
        return {"process_s": process_s, "error": f"exit status {found.returncode}"}
    return {"process_s": process_s, **json.loads(found.stdout.splitlines()[-1])}


def _build(args: argparse.Namespace) -> dict[str, Any]:
    """From the file of the model to that of the engine."""
    (name,) = args.engines
    config = config_of(args, name)
    if args.device == "cuda":
        cuda = replace(config.cuda, timing_cache=str(args.folder / CACHES))
        config = replace(config, cuda=cuda)
    clock = _Clock()
    model = load_model(args.folder / GRAPH)
    clock.note("reading")
    stats = load_stats(args.folder / RANGES) if config.code_precisions else None
    engine = quantrt.build(model, config=config, stats=stats, on_event=clock)
    clock.note("building")
    with engine:
        engine.save(_path(args))
        clock.note("writing")
        rows = engine.report["candidates"]
    return {
        "ships": engine.precision,
        "parts_s": clock.parts_s,
        "limit_mb": args.device_memory,
        "engine_bytes": _path(args).stat().st_size,
        "candidates": [{key: row.get(key) for key in ("name", "status", "reason")} for row in rows],
        **_memory(),
    }


def _load(args: argparse.Namespace) -> dict[str, Any]:
    """The engine, until it can run."""
    began = time.perf_counter()
    with quantrt.load(_path(args)):
        return {"load_s": time.perf_counter() - began, **_memory()}


def _path(args: argparse.Namespace) -> Path:
    return Path(args.folder) / f"built-{args.engines[0]}.qrt"


def _memory() -> dict[str, Any]:
    is_gpu = torch.cuda.is_initialized()
    reserved_bytes = torch.cuda.max_memory_reserved() if is_gpu else None
    return {"peak_memory": peak_memory(), "reserved_bytes": reserved_bytes}


class _Clock:
    """Seconds of what is done, by the name of what came to its end."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.parts_s: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        self.note(event.stage)

    def note(self, part: str) -> None:
        """What passed since the note before was spent on this."""
        now = time.perf_counter()
        self.parts_s[part] = self.parts_s.get(part, 0.0) + now - self._last
        self._last = now


if __name__ == "__main__":
    main()
