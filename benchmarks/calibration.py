# SPDX-License-Identifier: Apache-2.0
"""Time and memory of calibration: `python -m benchmarks.calibration resnet50.onnx`.

Every figure comes from a process of its own, one after the other. QuantRT's covers loading the model, one
pass over the samples and choosing all ranges by `auto`; `quantrt_default` is all that `quantrt quantize
--target openvino` does; ONNX Runtime's is its entropy calibrator from creation to ranges; NNCF's
`nncf.quantize` with its defaults, which also corrects biases. All see the same samples, made on the fly, so
that no figure contains the data. Peak memory is the process's largest resident set; CPU seconds add up all
threads, and unlike the wall's they bear other work on the machine.
"""

__all__ = ["main"]

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.calibration import calibration_page
from benchmarks.record import commit, environment, machine, write_results
from benchmarks.tasks.inputs import MODEL_NAMES, Feed, make_inputs

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "calibration-cpu.json"
PACKAGES = ("onnxruntime", "openvino", "nncf", "numpy")

SEED = 7
DISTINCT = 16
"""Samples made before the clock starts; the others are these, scaled by 1 to 1.5."""


@dataclass(frozen=True)
class Feeds:
    """`count` samples of batch 1, made when asked for; can be iterated again."""

    model: str
    count: int
    distinct: tuple[Feed, ...]

    def __iter__(self) -> Iterator[Feed]:
        for index in range(self.count):
            feed = self.distinct[index % DISTINCT]
            scale = 1 + 0.5 * index / self.count
            yield {
                name: np.multiply(array, scale).astype(array.dtype) if array.dtype.kind == "f" else array
                for name, array in feed.items()
            }


def main() -> None:
    args = _parser().parse_args()
    if args.job:
        print(json.dumps(_run_job(args.model, args.job, args.name)))
        return
    jobs = [f"quantrt:{count}" for count in args.samples] + args.peers
    results = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {"runs": []}
    results["packages"] = environment(PACKAGES)["packages"]
    for job in jobs:
        result = _run_in_process(args.model, job, args.name)
        result |= {"machine": machine(), "commit": commit(), "note": args.note}
        results["runs"].append(result)
        write_results(args.out, results, calibration_page(results))
        print(
            f"{job:20} {result['seconds']:8.1f} s  {result['cpu_seconds']:8.1f} CPU s  "
            f"{result['ms_per_sample']:7.1f} ms/sample  peak {result['peak_mb']:7.0f} MB",
            file=sys.stderr,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time and peak memory of calibration against peers.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", choices=MODEL_NAMES, help="which inputs to make; default: the file's stem")
    parser.add_argument("--samples", type=int, nargs="*", default=[128, 512, 2048], help="of QuantRT's runs")
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["ort_entropy:32", "nncf:128"],
        metavar="PEER:SAMPLES",
        help="quantrt_default, ort_entropy, ort_minmax or nncf. ONNX Runtime's entropy calibrator keeps "
        "every activation: 128 samples of ResNet-50 take 15 GB",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    parser.add_argument("--note", default="machine shared with other work", help="of what else was running")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser


def _run_in_process(model: Path, job: str, name: str | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.calibration", str(model), "--job", job]
    done = subprocess.run(command + (["--name", name] if name else []), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _run_job(model: Path, job: str, name: str | None) -> dict[str, Any]:
    kind, _, count = job.partition(":")
    runs: dict[str, Callable[[Path, Feeds], dict[str, Any]]] = {
        "quantrt": _quantrt,
        "quantrt_default": _quantrt_default,
        "ort_entropy": lambda path, feeds: _ort(path, feeds, "Entropy"),
        "ort_minmax": lambda path, feeds: _ort(path, feeds, "MinMax"),
        "nncf": _nncf,
    }
    name = name or model.stem
    distinct = tuple(make_inputs(name, 1, SEED + index) for index in range(DISTINCT))
    feeds = Feeds(name, int(count), distinct)
    before_mb = _peak_mb()
    start, start_cpu = time.perf_counter(), time.process_time()
    facts = runs[kind](model, feeds)
    seconds = time.perf_counter() - start
    return {
        "job": kind,
        "samples": feeds.count,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - start_cpu,
        "ms_per_sample": 1e3 * seconds / feeds.count,
        "peak_mb": _peak_mb(),
        "peak_before_mb": before_mb,
        **facts,
    }


def _quantrt(path: Path, feeds: Feeds) -> dict[str, Any]:
    from quantrt.calibrate.collect import collect
    from quantrt.calibrate.dataset import open_dataset
    from quantrt.calibrate.ranges.ranges import Grid, choose_range
    from quantrt.config import CalibrationConfig, QuantizeConfig
    from quantrt.model.load import load_model
    from quantrt.quantize.quantize import observed_values
    from quantrt.quantize.targets import TARGETS

    config = CalibrationConfig()
    start = time.perf_counter()
    model = load_model(path)
    names = observed_values(model, TARGETS, QuantizeConfig())
    loaded = time.perf_counter()
    stats = collect(model, names, open_dataset(feeds, model.inputs), config)
    collected = time.perf_counter()
    for tensor in stats.tensors.values():
        choose_range(tensor, Grid(), config)
    return {
        "tensors": len(stats.tensors),
        "floats_per_sample": sum(tensor.count for tensor in stats.tensors.values()) / stats.samples,
        "load_s": loaded - start,
        "collect_s": collected - loaded,
        "ranges_s": time.perf_counter() - collected,
    }


def _quantrt_default(path: Path, feeds: Feeds) -> dict[str, Any]:
    from quantrt.calibrate.dataset import open_dataset
    from quantrt.config import CalibrationConfig, QuantizeConfig
    from quantrt.model.load import load_model
    from quantrt.quantize.fit.fit import fit
    from quantrt.quantize.fit.observe import observe
    from quantrt.quantize.qdq.write import write
    from quantrt.quantize.quantize import observed_values
    from quantrt.quantize.targets.openvino import OPENVINO

    config, options = QuantizeConfig(), CalibrationConfig()
    start = time.perf_counter()
    model = load_model(path)
    samples = open_dataset(feeds, model.inputs)
    names = observed_values(model, (OPENVINO,), config)
    stats, reference = observe(model, names, samples, config, options)
    observed, observed_cpu = time.perf_counter(), time.process_time()
    fitted = fit(model, stats, OPENVINO, reference, config=config, calibration=options)
    write(fitted.model)
    return {
        "tensors": len(stats.tensors),
        "observe_s": observed - start,
        "fit_s": time.perf_counter() - observed,
        "fit_cpu_seconds": time.process_time() - observed_cpu,
        "method": fitted.method,
    }


def _ort(path: Path, feeds: Feeds, method: str) -> dict[str, Any]:
    from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.feeds = iter(feeds)

        def get_next(self) -> Feed | None:
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            path,
            augmented_model_path=str(Path(folder, "augmented.onnx")),
            calibrate_method=CalibrationMethod[method],
        )
        calibrator.collect_data(Reader())
        return {"tensors": len(calibrator.compute_data().data)}


def _nncf(path: Path, feeds: Feeds) -> dict[str, Any]:
    import nncf
    import openvino

    nncf.quantize(openvino.convert_model(path), nncf.Dataset(feeds), subset_size=feeds.count)
    return {}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
