# SPDX-License-Identifier: Apache-2.0
"""Precisions per region on an NVIDIA GPU: what a build ships, beside engines of one precision.

    python -m benchmarks.cuda_assignment OUT.json [ROW ...]      # on a machine with a GPU
    python -m benchmarks.cuda_assignment OUT.json --device cpu --batch 1 mobilenetv2-b32    # its steps alone

Each row builds one engine of {"fp16", "int8", "fp8"} within a budget, then opens that build's candidates that
are all in one precision again. All are judged on the same samples against ONNX Runtime in FP32, those of
`sdxl-b2` against the build's own candidate in FP32, and timed in turns by CUDA events. There is one timing
cache. Rows of `benchmarks.assignment_cases` read the data folder, `sdxl-b2` that of `benchmarks.diffusion`
after its steps `graph`, `weights` and `ranges`: `--sdxl FOLDER`.
With `--device cpu` the reference computes every region, and times are made up. Stages are told on stderr.
Needs the `bench` and `cuda` extras.
"""

__all__ = ["measure"]

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.assignment_cases import Material
from benchmarks.cuda.assignment_cases import CASES, Case, sdxl_case
from benchmarks.cuda.predicted import kernels_of, predicted_ms
from benchmarks.cuda.timing import commit, enqueued, environment, time_in_turns
from benchmarks.pages.cuda.assignment import FLOATS, SHIPPED, cuda_assignment_page
from benchmarks.record import write_results
from quantrt.assign.accuracy.accuracy import measure_accuracy
from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.class_labels import metric_of_data
from quantrt.build import build, make_plan
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.calibrate.stats import load_stats
from quantrt.config import AssignConfig, BenchConfig, BuildConfig, CudaConfig, DeviceConfig
from quantrt.errors import QuantRtError
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.prepare import Event
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.report.built.facts import BuildFacts
from quantrt.runtime.executor import Executor, open_executor
from quantrt.tactics.candidates import Candidate

TOLD = ("ships", "why", "ms", "build_s", "stages_s")
"""Of a row, on stdout."""

FloatRun = Callable[[Mapping[str, Any]], Mapping[str, Any]]

LAYERS = ("Conv", "Gemm", "MatMul")

STAND_IN_SAMPLES = 16
"""Of each kind, where the CPU stands in."""


@dataclass(frozen=True)
class Place:
    """Where rows are measured.

    Attributes:
        facts: for the page.
        time: what runs take, in turns.
        ready: what has to be in force meanwhile.
        most_samples: of each kind; None for all.
    """

    facts: Mapping[str, Any]
    cuda: CudaConfig
    bench: BenchConfig
    time: Callable[[dict[str, Callable[[], object]]], dict[str, dict[str, float]]]
    ready: Callable[[], AbstractContextManager[None]] = nullcontext
    most_samples: int | None = None


def main() -> None:
    parser = _parser()
    args = parser.parse_intermixed_args()
    cases = CASES if args.sdxl is None else {**CASES, "sdxl-b2": sdxl_case(args.sdxl)}
    unknown = set(args.rows) - set(cases)
    if unknown:
        parser.error(f"no row is called '{min(unknown)}'; there are {', '.join(cases)}")
    timing_cache = args.timing_cache or args.out.with_suffix(".timings.json")
    place = _stand_in() if args.device == "cpu" else _gpu(args.level, timing_cache)
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    results["environment"] = dict(place.facts)
    failed = []
    for name in args.rows or cases:
        case = cases[name] if args.batch is None else replace(cases[name], batch=args.batch)
        try:
            with place.ready():
                row = {"commit": commit(), **measure(case, place)}
        except QuantRtError as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
            continue
        results["rows"][name] = row
        write_results(args.out, results, cuda_assignment_page(results))
        print(json.dumps({name: {key: row[key] for key in TOLD}}), flush=True)
    sys.exit(1 if failed else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Precisions per region on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all, " + ", ".join(CASES))
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the steps alone")
    parser.add_argument("--batch", type=int, help="in place of the rows' own")
    parser.add_argument("--timing-cache", type=Path, help="default: beside OUT")
    parser.add_argument("--sdxl", type=Path, metavar="FOLDER", help="of sdxl-b2")
    return parser


def _gpu(level: int, timing_cache: Path) -> Place:
    cuda = CudaConfig(builder_optimization_level=level, timing_cache=str(timing_cache))
    return Place(environment(), cuda, BenchConfig(), time_in_turns)


def _stand_in() -> Place:
    from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
    from tests.made_up_times import made_up_times

    @contextmanager
    def ready() -> Iterator[None]:
        with stand_in_for_gpu(), made_up_times():
            yield

    facts = {"gpu": "a CPU that stands in for a GPU: no time below means anything", "packages": {}}
    return Place(facts, REFERENCE_ALONE, BRIEF, _time_once, ready, STAND_IN_SAMPLES)


def _time_once(runs: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    found = {}
    for name, run in runs.items():
        began = time.perf_counter()
        run()
        found[name] = {"p50": 1e3 * (time.perf_counter() - began)}
    return found


def measure(case: Case, place: Place) -> dict[str, Any]:
    """One row: the engine that is shipped and those of one precision, judged and timed together."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        material = _cut(case.make(Path(folder), case.batch), place.most_samples)
        config = BuildConfig(
            precisions=frozenset({"fp32", FLOATS, *case.codes}),
            device=DeviceConfig(device="cuda"),
            cuda=place.cuda,
            budget=case.budget,
            assign=AssignConfig(sensitivity_samples=case.samples, mixed=case.ranges is None),
            bench=replace(place.bench, batch=case.batch),
        )
        clock = _Stages()
        began = time.perf_counter()
        with _decisions() as decided:
            engine = stack.enter_context(
                build(
                    material.path,
                    config=config,
                    calibration=material.calibration or None,
                    validation=material.validation,
                    stats=None if case.ranges is None else load_stats(case.ranges),
                    on_event=clock,
                )
            )
        clock.stop()
        build_s = time.perf_counter() - began
        feed = material.feed(case.batch)
        uniform = _open_uniform(decided[0], stack)
        rejected = {one.spec.precision: one.reason for one in decided[0].rejected}
        executors = {SHIPPED: engine.executor, **uniform}
        float_run = _on_cpu(material.path) if case.ranges is None else _yardstick(decided[0], stack).run
        data = open_dataset(material.validation, decided[0].model.inputs)
        accuracies = _judge(data, decided[0].model, executors, float_run, config)
        ms = place.time({name: enqueued(one, feed) for name, one in executors.items()})
        kernels = kernels_of(
            _uniform(decided[0]),
            uniform,
            {name: row["p50"] for name, row in ms.items()},
            model=decided[0].model,
            inputs=feed,
        )
        report = engine.report
    return {
        "budget": {"metric": case.budget.metric, "max_drop_ratio": case.budget.max_drop_ratio},
        "ships": report["verdict"]["shipped"],
        "why": report["verdict"]["reason"],
        "ms": ms,
        "kernels_ms": {name: [one.floats_ms, one.codes_ms] for name, one in kernels.items()},
        "predicted_ms": predicted_ms(kernels, floats=FLOATS),
        "accuracies": accuracies,
        "rejected": rejected,
        **_mixed(report["mixed"]),
        "layers": _layers_in_codes(decided[0]),
        "notes": list(report["notes"]),
        "candidates": report["candidates"],
        "level": place.cuda.builder_optimization_level,
        "build_s": build_s,
        "stages_s": clock.seconds,
    }


def _cut(material: Material, most: int | None) -> Material:
    """With so many samples at most."""
    if most is None:
        return material
    validation = {name: array[:most] for name, array in material.validation.items()}
    return replace(material, calibration=material.calibration[:most], validation=validation)


@dataclass
class _Stages:
    """Seconds of every stage of a build, by the events that it emits; each is told when it begins."""

    seconds: dict[str, float] = field(default_factory=dict)
    stage: str = "reading"
    began: float = field(default_factory=time.perf_counter)
    since: float = field(default_factory=time.perf_counter)

    def __call__(self, event: Event) -> None:
        self.stop()
        if event.stage != self.stage:
            print(f"{self.since - self.began:6.1f} s  {event.stage}", file=sys.stderr, flush=True)
        self.stage = event.stage

    def stop(self) -> None:
        """What comes now is of no stage before."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self.since
        self.since = now


@contextmanager
def _decisions() -> Iterator[list[BuildFacts]]:
    """What builds meanwhile decide by: all of their candidates, not only what is shipped."""
    found: list[BuildFacts] = []
    with patch.object(sys.modules[build.__module__], "make_plan", wraps=make_plan) as made:
        yield found
        found += [call.args[0] for call in made.call_args_list]


def _uniform(facts: BuildFacts) -> dict[str, Candidate]:
    """The candidates of a build in floats of 16 bits alone, and in one kind of codes alone, by precision."""
    return {
        candidate.spec.precision: candidate
        for candidate in facts.candidates.values()
        if candidate.spec.precision != "fp32" and not candidate.spec.is_mixed
    }


def _open_uniform(facts: BuildFacts, stack: ExitStack) -> dict[str, Executor]:
    """Those candidates, opened again."""
    names = [output.name for output in facts.model.outputs]
    opened: dict[str, Executor] = {}
    for precision, candidate in _uniform(facts).items():
        opened[precision] = open_executor(candidate.model, candidate.options, output_names=names)
        stack.callback(opened[precision].close)
    return opened


def _yardstick(facts: BuildFacts, stack: ExitStack) -> Executor:
    """The build's candidate in FP32, opened again."""
    names = [output.name for output in facts.model.outputs]
    candidate = next(one for one in facts.candidates.values() if one.spec.precision == "fp32")
    opened = open_executor(candidate.model, candidate.options, output_names=names)
    stack.callback(opened.close)
    return opened


def _layers_in_codes(facts: BuildFacts) -> dict[str, int]:
    """Convolutions and products of what is shipped: those in codes, and those that the rules have there."""
    fitted = facts.candidates[facts.choice.winner].fitted
    if fitted is None or fitted.floats is None:
        return {"codes": 0, "could": 0}
    could = place_by_config(fitted.floats, fitted.model.target, facts.config.quantize)
    counts = (
        sum(row.is_int8 and row.op_type in LAYERS for row in placement.decisions)
        for placement in (fitted.model.placement, could)
    )
    return dict(zip(("codes", "could"), counts, strict=True))


def _on_cpu(path: Path) -> FloatRun:
    """The model in ONNX Runtime."""
    model = load_model(path)
    session = float_session(model.graph)
    names = [output.name for output in model.outputs]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _judge(
    data: Dataset,
    model: Model,
    executors: Mapping[str, Executor],
    float_run: FloatRun,
    config: BuildConfig,
) -> dict[str, dict[str, float | None]]:
    """What every engine loses, on the data that the build checked."""
    checked = Checked.choose(data, None, config, model)
    metric = metric_of_data(config.budget.metric, data, model.outputs)
    batches = list(checked.batches(lambda done, total: None))
    wanted = {id(batch.inputs): float_run(batch.inputs) for batch in batches}
    found = {}
    for name, executor in executors.items():
        accuracy = measure_accuracy(
            metric,
            batches,
            lambda inputs: wanted[id(inputs)],
            executor.run,
            fixed_batch=checked.batch_size,
        )
        drops = {"drop_ratio": accuracy.drop_ratio, "sqnr_db": accuracy.sqnr_db}
        found[name] = {key: x if math.isfinite(x) else None for key, x in drops.items()}
    return found


def _mixed(mixed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rounds and damages of a build."""
    if mixed is None:
        return {"reason": "not tried", "rounds": [], "regions": []}
    regions = [
        {"name": region["name"], "damage": max(map(float, region["damage"].values()))}
        for region in mixed.get("tables", {}).get("regions", ())
        if region["damage"]
    ]
    return {"reason": mixed["reason"], "rounds": mixed["rounds"], "regions": regions}


if __name__ == "__main__":
    main()
