# SPDX-License-Identifier: Apache-2.0
"""Deployed architectures beside other tools: `python -m benchmarks.zoo_peers FOLDER [ROW ...]`.

The architectures are those of `benchmarks.zoo_deployed`, with the zoo's drawn weights. ONNX Runtime's
`quantize_static`, `nncf.quantize` and QuantRT get the same samples; all are timed in turns, one sample at a
time, and their outputs for other samples are held against ONNX Runtime's in FP32. On a machine that others
use, `--one-core` counts the time of the processor, of one thread. FOLDER keeps the models and what the other
tools made of them. Needs nncf, and what the models are of.
"""

__all__ = ["beside_peers"]

import argparse
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.peers.peers import Precision, Runner, nncf_int8, open_openvino, open_ort, ort_int8_u8s8
from benchmarks.record import commit, load_results, other_machine, write_results
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.judge import TOOL_ERRORS
from benchmarks.tasks.task import rows
from benchmarks.zoo_case import DYNAMO
from benchmarks.zoo_deployed import DEPLOYED, TRANSFORMERS
from benchmarks.zoo_models import FEEDS, exported, rows_of
from benchmarks.zoo_peers_page import ENGINE, FLOAT, zoo_peers_page
from quantrt.build import build
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BenchConfig, BuildConfig
from quantrt.device import describe_device
from quantrt.model.load import load_model
from quantrt.prepare import Job, quantize_for_device
from quantrt.reference.metrics import Error
from quantrt.runtime.engine import Engine
from quantrt.tactics.candidate import Candidate
from quantrt.tactics.candidates import Opener, list_specs, with_bf16
from quantrt.tactics.idle_threads import wait_for_sleep
from quantrt.tactics.timing import Clock, compare_paired, time_interleaved

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "zoo-peers-cpu.json"

CALIBRATED, JUDGED = range(FEEDS), (101, 102)
"""Seeds of the samples."""

TIMED = BenchConfig(warmup_s=0.2, duration_s=1.0, max_duration_s=3.0)
SEARCHED = BenchConfig(warmup_s=0.2, duration_s=1.0, max_duration_s=4.0)
"""Seconds of the rounds of all, and of QuantRT's own."""

FLOAT_TYPES: dict[str, Precision | None] = {"": None, " f32": "f32"}
"""OpenVINO's own choice for what stays float, which is bf16 on a CPU that has it; and f32."""

NO_NOISE_DB = 999.0

Run = Callable[[Feed], Mapping[str, Any]]


@dataclass(frozen=True)
class Material:
    """A model with its samples, single ones where its first axis is free."""

    path: Path
    calibration: list[Feed]
    judged: list[Feed]
    is_transformer: bool


def main() -> None:
    """Measure the rows that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo_peers")
    parser.add_argument("folder", type=Path, help="of models, made where there are none")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all of them")
    parser.add_argument("--one-core", action="store_true", help="processor time of one thread")
    parser.add_argument("--only-codes", action="store_true", help="no build within the budget")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    clock = time.process_time_ns if args.one_core else time.perf_counter_ns
    results = load_results(args.out, any_machine=True)
    for name in args.rows or rows_of(DEPLOYED):
        busy = os.getloadavg()[0]
        row = beside_peers(_material(name, args.folder), clock, only_codes=args.only_codes)
        facts = {"commit": commit(), "load_before": busy, "one_core": args.one_core}
        results["models"][name] = {**facts, **row, **other_machine(results)}
        order = [one for one in rows_of(DEPLOYED) if one in results["models"]]
        results["models"] = {one: results["models"][one] for one in order}
        write_results(args.out, results, zoo_peers_page(results))
        print(name, row, flush=True)


def _material(name: str, folder: Path) -> Material:
    case, _ = rows_of(DEPLOYED)[name]
    path = folder / f"{name}.onnx"
    if not path.exists():
        model, _ = exported(case, DYNAMO)
        onnx.save(model, path)
    calibration, judged = (
        [sample for seed in seeds for sample in rows(case.feed(seed), 1)] for seeds in (CALIBRATED, JUDGED)
    )
    return Material(path, calibration, judged, name in TRANSFORMERS)


def beside_peers(
    material: Material, clock: Clock = time.perf_counter_ns, *, only_codes: bool = False
) -> dict[str, Any]:
    """One model: every contender's time, the time over that of QuantRT's fastest in codes, and its SQNR.

    Args:
        only_codes: leave out what is shipped within the budget.
    """
    peers, failed = _peers(material)
    with ExitStack() as stack:
        engine, codes = _quantrt(material, stack, only_codes=only_codes)
        own = {} if engine is None else {ENGINE: engine.run}
        runs: dict[str, Run] = {**peers, **codes, **own}
        wanted = [_copied(runs[FLOAT](feed)) for feed in material.judged]
        sqnr = {name: _sqnr_db(run, material.judged, wanted) for name, run in runs.items()}
        timed = {name: partial(run, material.judged[0]) for name, run in runs.items()}
        latencies = time_interleaved(timed, TIMED, before_turn=wait_for_sleep, clock=clock)
    ours = min(codes, key=lambda name: latencies[name].median_ms)
    found: dict[str, Any] = {name: {"error": reason} for name, reason in failed.items()}
    for name, latency in latencies.items():
        pair = compare_paired(latency, latencies[ours])
        found[name] = {
            "median_ms": latency.median_ms,
            "ratio": pair.ratio,
            "lo": pair.lo,
            "hi": min(pair.hi, 1e9),
            "sqnr_db": sqnr[name],
        }
    ships = None if engine is None else engine.report["verdict"]["shipped"]
    return {"ships": ships, "codes": ours, "own": list(codes), "contenders": found}


def _quantrt(
    material: Material, stack: ExitStack, *, only_codes: bool
) -> tuple[Engine | None, dict[str, Run]]:
    """What `quantrt build --int8` ships with its budget; and all in codes that can be, by each library."""
    model = load_model(material.path)
    machine = describe_device(with_gpu=False)
    config = with_bf16(BuildConfig(precisions=frozenset({"fp32", "int8"}), bench=SEARCHED), machine)
    samples = open_dataset(material.calibration, model.inputs)
    quantized = quantize_for_device(Job(model, config, machine, lambda event: None), samples, None, None)
    engine = None
    if not only_codes:
        engine = stack.enter_context(build(model, config=config, calibration=samples, stats=quantized.stats))
    opener = stack.enter_context(closing(Opener(model, config, material.calibration[0])))
    codes = dict[str, Run]()
    for spec in list_specs(config, machine):
        fitted = quantized.fits.get((spec.library, spec.precision))
        opened = opener.open(spec, fitted) if spec.has_codes and fitted is not None else None
        if isinstance(opened, Candidate):
            codes[spec.name] = stack.enter_context(closing(opened.executor)).run
    return engine, codes


def _peers(material: Material) -> tuple[dict[str, Run], dict[str, str]]:
    """The other tools' models, opened; and why those that failed did."""
    shapes = {name: np.shape(array) for name, array in material.calibration[0].items()}
    nncf = partial(nncf_int8, is_transformer=material.is_transformer)
    files: dict[str, Callable[[], Runner]] = {
        FLOAT: partial(open_ort, material.path),
        "ort u8s8": lambda: open_ort(_made(material, ort_int8_u8s8, ".u8s8.onnx")),
    }
    for suffix, precision in FLOAT_TYPES.items():
        files[f"openvino{suffix}"] = partial(open_openvino, material.path, precision, shapes=shapes)
        files[f"nncf{suffix}"] = partial(_open_nncf, material, nncf, precision, shapes)
    opened, failed = dict[str, Run](), dict[str, str]()
    for name, make in files.items():
        try:
            opened[name] = make().run
        except TOOL_ERRORS as error:
            failed[name] = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
    return opened, failed


def _open_nncf(
    material: Material,
    quantize: Callable[[Path, Path, list[Feed]], None],
    precision: Precision | None,
    shapes: dict[str, tuple[int, ...]],
) -> Runner:
    return open_openvino(_made(material, quantize, ".nncf.xml"), precision, shapes=shapes)


def _made(material: Material, quantize: Callable[[Path, Path, list[Feed]], None], suffix: str) -> Path:
    """What a tool makes of the model, now or before."""
    path = material.path.with_suffix(suffix)
    if not path.exists() or path.stat().st_mtime < material.path.stat().st_mtime:
        quantize(material.path, path, material.calibration)
    return path


def _copied(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(array) for name, array in outputs.items()}


def _sqnr_db(run: Run, feeds: list[Feed], wanted: list[dict[str, Any]]) -> float:
    """Of the worst output, over all samples."""
    errors = {name: Error() for name in wanted[0]}
    for feed, want in zip(feeds, wanted, strict=True):
        got = run(feed)
        for name, error in errors.items():
            error.add(want[name], np.asarray(got[name]))
    return min([NO_NOISE_DB, *(error.sqnr_db for error in errors.values())])


if __name__ == "__main__":
    main()
