# SPDX-License-Identifier: Apache-2.0
"""Residual sums in floats beside sums of codes: `python -m benchmarks.float_sums [NAME ...]`.

The recipe `accurate` for OpenVINO with `--float-sums`, as it is, and without, from the same statistics. Both
are judged on the samples of `benchmarks.accuracy`. A second run adds its models to the results.
"""

__all__ = ["float_sums_page", "measure"]

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.page import number, table
from benchmarks.peers.contenders import ACCURATE, Contender, Opened
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.judge import float_outputs, judge
from benchmarks.tasks.paired import compare_agreement, compare_sqnr
from benchmarks.tasks.real_tasks import load_task
from benchmarks.tasks.task import Task
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.config import BenchConfig
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.recipe import load_recipe
from quantrt.runtime.executor import open_executor
from quantrt.tactics.timing import compare_paired, time_interleaved

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "float-sums-cpu.json"
PACKAGES = ("onnxruntime", "openvino", "onnx", "numpy")
NAMES = (
    "cifar10_resnet8",
    "cifar10_resnet8_large",
    "cifar10_resnet20",
    "cifar10_resnet56",
    "cifar10_mobilenetv3_small",
    "cifar10_efficientvit_b0",
)
"""The models with residual sums of convolutions."""
CODES, FLOATS = "codes", "floats"

HEAD = """# Residual sums in floats (CPU)

{machine}

The recipe `accurate` for OpenVINO without and with residual sums in floats (`--float-sums`, part of the recipe), from the
same 300 samples; every product is in 8 bits either way. Judged on the samples of [accuracy-cpu.md](accuracy-cpu.md), where
the peers stand: noise of the logits, and how often a model decides as FP32 does. Differences have the standard error of the choice
of pictures. Float sums are kept where the outputs of calibration samples gain a quarter of a decibel by them. `x time` is what
they take for one picture over what sums of codes take, timed in turns, with its 99 % interval.

Reproduce: `python -m benchmarks.float_sums`

"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description="Residual sums in floats beside sums of codes.")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    for name in args.names:
        results = load_results(args.out, PACKAGES)
        results["models"][name] = measure(load_task(name, args.out.parent))
        order = [one for one in NAMES if one in results["models"]]
        results["models"] = {one: results["models"][one] for one in order}
        write_results(args.out, results, float_sums_page(results))
        print(name, results["models"][name], flush=True)


def measure(task: Task) -> dict[str, Any]:
    """Both ways on one task."""
    reference = float_outputs(task)
    model = load_model(task.path)
    samples = open_dataset(task.calibration, model.inputs)
    made, methods = _quantized(model, samples)
    name = reference.names[0]
    judged = {
        way: judge(Contender(way, partial(_open, model, name)), task, reference)
        for way, model in made.items()
    }
    alone = {CODES: judged[CODES]}
    return {
        "commit": commit(),
        "methods": methods,
        "ways": {way: one.row for way, one in judged.items()},
        "sqnr": compare_sqnr(judged[FLOATS], alone, name, task.sources),
        "agreement": compare_agreement(judged[FLOATS], alone, task.sources),
        "time": _compare_times(made, next(iter(samples.batches(1, 1))).inputs),
    }


def _quantized(model: Model, samples: Dataset) -> tuple[dict[str, QuantizedModel], dict[str, str]]:
    """The model without and with float sums, and the methods that were chosen."""
    recipe = load_recipe(ACCURATE)
    config, options = recipe.quantize_config(), recipe.calibration_config()
    stats, reference = observe(model, observed_values(model, (OPENVINO,), config), samples, config, options)
    fits = {
        way: fit(
            model,
            stats,
            OPENVINO,
            reference,
            config=replace(config, float_sums=way == FLOATS),
            calibration=options,
        )
        for way in (CODES, FLOATS)
    }
    return {way: made.model for way, made in fits.items()}, {way: made.method for way, made in fits.items()}


def _compare_times(made: Mapping[str, QuantizedModel], inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Time of float sums over that of codes, for one sample, in turns."""
    with ExitStack() as stack:
        runs = {}
        for way, quantized in made.items():
            executor = open_executor(lower_to_openvino(write(quantized)), ExecOptions())
            runs[way] = stack.enter_context(closing(executor)).prepare(inputs)
        latencies = time_interleaved(runs, BenchConfig())
    pair = compare_paired(latencies[FLOATS], latencies[CODES])
    return {"ratio": pair.ratio, "lo": pair.lo, "hi": pair.hi}


@contextmanager
def _open(quantized: QuantizedModel, output: str) -> Iterator[Opened]:
    executor = open_executor(lower_to_openvino(write(quantized)), ExecOptions(), output_names=[output])
    try:
        yield Opened(executor.run)
    finally:
        executor.close()


def float_sums_page(results: Mapping[str, Any]) -> str:
    """Markdown of all models."""
    columns = [
        *("model", "sums of codes, dB", "in floats", "gain", "agreement, %", "in floats", "gain"),
        *("top-1", "in floats", "x time", "method", "commit"),
    ]
    rows = [_row(name, model) for name, model in results["models"].items()]
    return HEAD.format(machine=machine_line(results["environment"])) + table(columns, rows)


def _time_text(pair: Mapping[str, float] | None) -> str:
    return "" if pair is None else f"{pair['ratio']:.3f} [{pair['lo']:.3f}, {pair['hi']:.3f}]"


def _row(name: str, model: Mapping[str, Any]) -> list[str]:
    sqnr, agreement = model["sqnr"], model["agreement"]
    return [
        name,
        number(sqnr["peer"], 2),
        number(sqnr["quantrt"], 2),
        f"{sqnr['difference']:+.2f} ± {sqnr['standard_error']:.2f}",
        number(100 * agreement["peer"], 2),
        number(100 * agreement["quantrt"], 2),
        f"{100 * agreement['difference']:+.2f} ± {100 * agreement['standard_error']:.2f}",
        *(number(model["ways"][way]["score"], 4) for way in (CODES, FLOATS)),
        _time_text(model.get("time")),
        model["methods"][FLOATS],
        model["commit"],
    ]


if __name__ == "__main__":
    main()
