# SPDX-License-Identifier: Apache-2.0
"""Builds the zoo: `python -m benchmarks.zoo GRAPHS OUT.json [ROW ...] --device cuda --workers 8`.

GRAPHS is the folder that `benchmarks.zoo_models` wrote. Every row is built in a process of its own, several
at a time, with a limit of time each: `quantrt.build` for fp16 and int8 (on a CPU int8), calibrated on a few
samples, without an accuracy bound. Then every candidate is opened once more, and its outputs are held against
ONNX Runtime in FP32 on other samples. OUT.json has a row as soon as it ends. Rows share the device, so that
milliseconds say what is faster, and no more.
"""

__all__ = ["main"]

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.zoo_page import zoo_page

SUFFIX = ".onnx.xz"
WAIT_S = 0.2


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the zoo.")
    parser.add_argument("graphs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all that GRAPHS has")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--gpus", type=int, default=1, help="rows go to them in turns")
    parser.add_argument("--workers", type=int, default=1, help="rows at a time")
    parser.add_argument("--threads", type=int, default=2, help="of a row")
    parser.add_argument("--level", type=int, default=0, help="builder optimization level, on a GPU")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of a row")
    parser.add_argument("--end-s", type=float, default=float("inf"), help="when what still runs is ended")
    args = parser.parse_args(arguments)
    paths = {path.name.removesuffix(SUFFIX): path for path in args.graphs.glob(f"*{SUFFIX}")}
    names = [name for name in args.rows or paths if name in paths]
    names.sort(key=lambda name: -paths[name].stat().st_size)  # the long ones first
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        _Crowd(args, paths, results, Path(folder)).run(names)


class _Crowd:
    """Processes of rows, `workers` at a time."""

    def __init__(
        self, args: argparse.Namespace, paths: dict[str, Path], results: dict[str, Any], folder: Path
    ) -> None:
        self._args, self._paths, self._results, self._folder = args, paths, results, folder
        self._running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._lanes: dict[str, int] = {}
        self._began = time.perf_counter()

    def run(self, names: list[str]) -> None:
        """All of them, or what can be begun before the end."""
        left = list(names)
        while left or self._running:
            is_over = time.perf_counter() - self._began > self._args.end_s
            while left and not is_over and len(self._running) < self._args.workers:
                self._start(left.pop(0))
            if is_over:
                left.clear()
            time.sleep(WAIT_S)
            for name in list(self._running):
                self._look_at(name, is_over=is_over)

    def _start(self, name: str) -> None:
        lanes = range(self._args.workers)
        lane = next(lane for lane in lanes if lane not in self._lanes.values())
        self._lanes[name] = lane
        variables = dict(os.environ, OMP_NUM_THREADS=str(self._args.threads))
        if self._args.device == "cuda" and self._args.gpus > 1:
            variables["CUDA_VISIBLE_DEVICES"] = str(lane % self._args.gpus)
        command = [sys.executable, "-m", "benchmarks.zoo_row", str(self._paths[name]), str(self._file(name))]
        command += ["--device", self._args.device, "--threads", str(self._args.threads)]
        command += ["--level", str(self._args.level)]
        with self._file(name).with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        self._running[name] = (process, time.perf_counter())

    def _look_at(self, name: str, *, is_over: bool) -> None:
        """Keep its row where it has ended; end it where it takes too long."""
        process, began = self._running[name]
        seconds = time.perf_counter() - began
        if process.poll() is None and not is_over and seconds < self._args.limit_s:
            return
        is_late = process.poll() is None
        if is_late:
            process.kill()
        process.wait()
        del self._running[name], self._lanes[name]
        file = self._file(name)
        row = json.loads(file.read_text()) if file.exists() else {}
        if is_late:
            row["unfinished"] = f"ended after {seconds:.0f} s"
        elif process.returncode:
            row["error"] = f"exit status {process.returncode}: {_last_line(file.with_suffix('.log'))}"
        row["process_s"] = round(seconds, 1)
        self._results["rows"][name] = row
        self._results.update({key: row.pop(key) for key in ("environment",) if key in row})
        self._args.out.write_text(json.dumps(self._results, indent=1) + "\n")
        if "environment" in self._results:
            self._args.out.with_suffix(".md").write_text(zoo_page(self._results, self._args.device))
        print(json.dumps({name: row}), flush=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


if __name__ == "__main__":
    main()
