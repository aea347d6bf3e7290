# SPDX-License-Identifier: Apache-2.0
"""Accuracy at a target, on a CPU: `python -m benchmarks.accuracy_control MODELS [NAME ...]`.

`quantrt build` with the recipe `accurate` beside `nncf.quantize_with_accuracy_control`, both in OpenVINO,
with the same calibration samples and the same target on them: decisions agree with FP32's on 99 %, or, of
models without decisions, outputs differ by at most 1 % of their power. What each makes is judged on other
samples, with how many products it left in floats and how long it searched, one after the other; then both are
timed on one sample, in turns, with FP32. A second run adds its models to the results.

    --limit-s N    that NNCF has failed when it is not done after N seconds of processor time
"""

__all__ = ["measure", "page"]

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.openvino_products import products
from benchmarks.pages.page import failures, number, table
from benchmarks.peers.contenders import (
    ACCURATE,
    BUILD_BENCH,
    CONTROLLED_DROP_RATIO,
    Contender,
    Opened,
    Run,
    nncf_controlled,
)
from benchmarks.peers.peers import open_openvino
from benchmarks.record import (
    commit,
    load_results,
    machine_line,
    other_machine,
    other_machines,
    write_results,
)
from benchmarks.tasks.decisions import metric_of, with_decisions
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.judge import float_outputs, judge
from benchmarks.tasks.paired import Judged, compare_agreement, compare_score, compare_sqnr
from benchmarks.tasks.real_tasks import TASK_NAMES, load_task
from benchmarks.tasks.task import Task
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig, DeviceConfig
from quantrt.recipe import load_recipe
from quantrt.runtime.engine import load as load_engine
from quantrt.tactics.timing import compare_paired, time_interleaved

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-control-cpu.json"
OURS, NNCF, FLOAT = "quantrt", "nncf", "fp32"
TIMED = BenchConfig(duration_s=2.0, max_duration_s=6.0)
MEGABYTE = 1e6
NOT_IMPORTED = ("silero_vad_16k_op15",)
"""What OpenVINO cannot import."""

NODES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Products, as ONNX calls them."""

_Timed = Callable[[Feed], Mapping[str, np.ndarray]]
"""Runs one sample."""

HEAD = f"""# Accuracy at a target (CPU)

{{machine}}
{{others}}
`quantrt build` with the recipe `accurate` (`quantrt`) and `nncf.quantize_with_accuracy_control` (`nncf`), both in
OpenVINO, from the same calibration samples. The target of both is of these samples: decisions agree with FP32's on
{1 - CONTROLLED_DROP_RATIO:.0%}, or, of models without decisions, outputs differ by at most {CONTROLLED_DROP_RATIO:.0%} of their power (20 dB).
What is shown is of the other samples on which [accuracy-cpu.md](accuracy-cpu.md) judges. `in floats` counts the
products (Conv, Gemm, MatMul) that are not computed on codes: those that do harm, and with QuantRT also those that
are not faster so, which it times as it searches; a model of floats alone is what is left where nothing else keeps
the target and gains time. Floats are f32 with NNCF; with QuantRT they are bf16 where this CPU computes in it and that
is faster inside the target, as `--int8` does by default: less than 60 dB with every product in floats tell of it. `s` is the whole search, calibration with it, of one run each, one after the other,
{{quiet}}. `ms` is of one sample, timed in turns in one process,
beside FP32 in OpenVINO (f32 for what is not int8, shapes fixed), and `x of nncf` NNCF's time over QuantRT's, with its
99 % interval: above 1 QuantRT's is faster. `MB` is of the file: the engine, or NNCF's .xml and .bin. `failed` is what
a tool refuses, or was not done with in the seconds that it was given (`--limit-s`).

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 && python -m benchmarks.accuracy_control MODELS`

"""  # noqa: E501


@dataclass
class _Made:
    """What a search left: seconds, its products, megabytes of its file, how it runs one sample.

    Where it failed, nothing.
    """

    seconds: float = 0.0
    products: int = 0
    in_floats: int = 0
    file_mb: float = 0.0
    timed: _Timed | None = None

    def figures(self) -> dict[str, float]:
        """What a row of results has of it."""
        return {name: value for name, value in vars(self).items() if name != "timed"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy at a target, QuantRT and NNCF.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    names = [name for name in TASK_NAMES if name not in NOT_IMPORTED]
    parser.add_argument("names", nargs="*", default=names, metavar="NAME", help="default: all models")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs on this machine: say so")
    parser.add_argument("--limit-s", type=int, metavar="N", help="processor seconds that NNCF may take")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out, any_machine=True)
    for name in args.names:
        row = measure(load_task(name, args.models), args.limit_s)
        results["models"][name] = row | {"is_quiet": args.quiet} | other_machine(results)
        order = [task for task in TASK_NAMES if task in results["models"]]
        results["models"] = {task: results["models"][task] for task in order}
        write_results(args.out, results, page(results))
        print(name, row)


def measure(task: Task, limit_s: int | None = None) -> dict[str, Any]:
    """Both searches on one task, and how what they made compares.

    Args:
        limit_s: processor seconds that NNCF may take; None for all that it wants.
    """
    reference = float_outputs(task)
    openers: dict[str, Callable[[Task, _Made, ExitStack], Run]] = {
        OURS: _open_quantrt,
        NNCF: partial(_open_nncf, limit_s=limit_s),
    }
    made = {name: _Made() for name in openers}
    with ExitStack() as stack:
        judged = {
            name: judge(Contender(name, partial(_opened, opener, task, made[name], stack)), task, reference)
            for name, opener in openers.items()
        }
        times = _times(task, made)
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": reference.samples,
        "metric": metric_of(task),
        "score_name": "" if task.score is None else task.score.name,
        "float_score": None if task.score is None else task.score.of(reference.arrays()),
        "contenders": {name: one.row | made[name].figures() for name, one in judged.items()},
        "comparisons": _compare(judged, reference.names, task),
        "times": times,
    }


def _opened(
    opener: Callable[[Task, _Made, ExitStack], Run], task: Task, made: _Made, stack: ExitStack
) -> AbstractContextManager[Opened]:
    """What stays open behind its judge, until `stack` closes: to be timed beside the others."""
    return nullcontext(Opened(opener(task, made, stack)))


def _times(task: Task, made: dict[str, _Made]) -> dict[str, Any]:
    """Milliseconds of one sample by name, FP32's too, and NNCF's time over QuantRT's where there are both."""
    sample = task.calibration[0]
    runs: dict[str, _Timed] = {FLOAT: open_openvino(task.path, precision="f32", shapes=_shapes(task)).run}
    runs |= {name: one.timed for name, one in made.items() if one.timed is not None}
    latencies = time_interleaved({name: partial(run, sample) for name, run in runs.items()}, TIMED)
    found: dict[str, Any] = {"ms": {name: latency.median_ms for name, latency in latencies.items()}}
    if {OURS, NNCF} <= latencies.keys():
        pair = compare_paired(latencies[NNCF], latencies[OURS])
        found |= {"ratio": pair.ratio, "lo": pair.lo, "hi": pair.hi}
    return found


def _shapes(task: Task) -> dict[str, tuple[int, ...]]:
    """Of one sample."""
    return {name: np.shape(array) for name, array in task.calibration[0].items()}


def _compare(judged: dict[str, Judged], names: Sequence[str], task: Task) -> list[dict[str, Any]]:
    """QuantRT's model minus NNCF's, where there are both: by signal over noise, agreement and the metric."""
    if any("error" in one.row for one in judged.values()):
        return []
    ours, peers = judged[OURS], {NNCF: judged[NNCF]}
    rows: list[dict[str, Any] | None] = [compare_sqnr(ours, peers, name, task.sources) for name in names]
    rows.append(compare_agreement(ours, peers, task.sources))
    rows.append(None if task.score is None else compare_score(ours, peers, task.score))
    return [row for row in rows if row is not None]


def _open_quantrt(task: Task, made: _Made, stack: ExitStack) -> Run:
    recipe = load_recipe(ACCURATE)
    config = BuildConfig(
        device=DeviceConfig(libraries=("openvino",)),
        precisions=frozenset({"fp32", recipe.precision}),
        calibration=recipe.calibration_config(),
        quantize=recipe.quantize_config(),
        budget=Budget(metric=metric_of(task), max_drop_ratio=CONTROLLED_DROP_RATIO),
        bench=BUILD_BENCH,
    )
    samples = task.calibration
    began = time.perf_counter()
    judged_on = samples if metric_of(task) == "sqnr" else with_decisions(task)
    engine = stack.enter_context(build(task.path, config=config, calibration=samples, validation=judged_on))
    made.seconds = time.perf_counter() - began
    layers = [layer for layer in engine.plan.layers if layer.op_type in NODES]
    made.products = len(layers)
    made.in_floats = sum(layer.precision != recipe.precision for layer in layers)
    path = Path(stack.enter_context(TemporaryDirectory()), "engine.qrt")
    engine.save(path)
    made.file_mb = path.stat().st_size / MEGABYTE
    made.timed = stack.enter_context(load_engine(path)).run  # no other shape is compiled in it before
    return engine.run


def _open_nncf(task: Task, made: _Made, stack: ExitStack, *, limit_s: int | None) -> Run:
    path = Path(stack.enter_context(TemporaryDirectory()), "controlled.xml")
    began = time.perf_counter()
    nncf_controlled(task, task.path, path, task.calibration, limit_s=limit_s)
    made.seconds = time.perf_counter() - began
    found = products(path, task.calibration[0])
    made.products, made.in_floats = len(found), sum(one.is_float for one in found)
    made.file_mb = sum(file.stat().st_size for file in (path, path.with_suffix(".bin"))) / MEGABYTE
    made.timed = open_openvino(path, precision="f32", shapes=_shapes(task)).run
    runner = open_openvino(path, precision="f32")
    return lambda inputs: runner.run(dict(inputs))


def page(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    models = results["models"]
    is_quiet = all(model["is_quiet"] for model in models.values())
    quiet = "on a machine with nothing else to do" if is_quiet else "on a machine that others used too"
    machine, others = machine_line(results["environment"]), other_machines(models.items())
    head = HEAD.format(machine=machine, others=others, quiet=quiet)
    columns = [
        "model",
        "made by",
        "agreement",
        "SQNR dB",
        "metric",
        "FP32",
        "its",
        "in floats",
        "s",
        "ms",
        "FP32 ms",
        "x of nncf",
        "MB",
        "commit",
    ]
    rows = [_row(name, contender, model) for name, model in models.items() for contender in (OURS, NNCF)]
    return head + table(columns, rows) + failures(models)


def _row(name: str, contender: str, model: dict[str, Any]) -> list[str]:
    row = model["contenders"][contender]
    if "error" in row:
        return [name, contender, "failed", *[""] * 11]
    return [
        name,
        contender,
        number(row.get("agreement_ratio"), 4),
        ", ".join(number(value, 2) for value in row["sqnr_db"].values()),
        model["score_name"],
        number(model["float_score"], 4),
        number(row.get("score"), 4),
        f"{row['in_floats']} of {row['products']}",
        number(row["seconds"], 0),
        *_timed(contender, model.get("times", {})),
        number(row.get("file_mb"), 2),
        model["commit"],
    ]


def _timed(contender: str, times: dict[str, Any]) -> list[str]:
    """Its milliseconds, FP32's, and of QuantRT NNCF's time over its own; empty where none were taken."""
    ms = times.get("ms", {})
    has_pair = contender == OURS and "ratio" in times
    ratio = f"{times['ratio']:.2f} [{times['lo']:.2f}, {times['hi']:.2f}]" if has_pair else ""
    return [number(ms.get(contender), 3), number(ms.get(FLOAT), 3), ratio]


if __name__ == "__main__":
    main()
