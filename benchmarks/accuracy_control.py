# SPDX-License-Identifier: Apache-2.0
"""Accuracy at a target, on a CPU: `python -m benchmarks.accuracy_control MODELS [NAME ...]`.

`quantrt build` with the recipe `accurate` beside `nncf.quantize_with_accuracy_control`, both in OpenVINO,
with the same calibration samples and the same target on them: decisions agree with FP32's on 99 %, or, of
models without classes, outputs differ by at most 1 % of their power. What each makes is judged on other
samples, with how many products it left in floats and how long it searched, one after the other. A second
run adds its models to the results.
"""

__all__ = ["measure", "page"]

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.contenders import (
    ACCURATE,
    BUILD_BENCH,
    CONTROLLED_DROP_RATIO,
    Contender,
    Run,
    nncf_controlled,
)
from benchmarks.judge import float_outputs, judge
from benchmarks.page import number, table
from benchmarks.peers import open_openvino, open_ort
from benchmarks.real_tasks import TASK_NAMES, load_task
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.task import Task, same_class
from quantrt.build import build
from quantrt.config import Budget, BuildConfig, DeviceConfig
from quantrt.recipe import load_recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-control-cpu.json"
OURS, NNCF = "quantrt", "nncf"
OTHER_DECISIONS = ("ultraface_rfb320", "silero_vad_16k_op15")
"""A detector and a model that OpenVINO cannot import: neither decides by classes."""

NODES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
OPERATIONS = frozenset({"Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul"})
"""Products, as ONNX and as OpenVINO call them."""

MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool"})
"""What OpenVINO moves codes through."""

HEAD = f"""# Accuracy at a target (CPU)

{{machine}}

`quantrt build` with the recipe `accurate` (`quantrt`) and `nncf.quantize_with_accuracy_control` (`nncf`), both in
OpenVINO, from the same calibration samples. The target of both is of these samples: decisions agree with FP32's on
{1 - CONTROLLED_DROP_RATIO:.0%}, or, of models without classes, outputs differ by at most {CONTROLLED_DROP_RATIO:.0%} of their power (20 dB).
What is shown is of the other samples on which [accuracy-cpu.md](accuracy-cpu.md) judges. `in floats` counts the
products (Conv, Gemm, MatMul) that are not computed on codes: those that do harm, and with QuantRT also those that
are not faster so, which it times as it searches; a model of floats alone is what is left where nothing else keeps
the target and gains time. `s` is the whole search, calibration with it, of one run each, one after the other,
{{quiet}}.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 && python -m benchmarks.accuracy_control MODELS`

"""  # noqa: E501


@dataclass
class _Made:
    """What a search left: seconds, and its products; none where it failed."""

    seconds: float = 0.0
    products: int = 0
    in_floats: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy at a target, QuantRT and NNCF.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    names = [name for name in TASK_NAMES if name not in OTHER_DECISIONS]
    parser.add_argument("names", nargs="*", default=names, metavar="NAME", help="default: all models")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs on this machine: say so")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out)
    for name in args.names:
        row = measure(load_task(name, args.models))
        results["models"][name] = row | {"is_quiet": args.quiet}
        order = [task for task in TASK_NAMES if task in results["models"]]
        results["models"] = {task: results["models"][task] for task in order}
        write_results(args.out, results, page(results))
        print(name, row)


def measure(task: Task) -> dict[str, Any]:
    """Both searches on one task."""
    reference = float_outputs(task)
    openers: dict[str, Callable[[Task, _Made], Any]] = {OURS: _open_quantrt, NNCF: _open_nncf}
    rows = {}
    for name, opener in openers.items():
        made = _Made()
        judged = judge(Contender(name, partial(opener, task, made)), task, reference)
        rows[name] = judged.row | vars(made)
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": reference.samples,
        "metric": _metric(task),
        "score_name": "" if task.score is None else task.score.name,
        "float_score": None if task.score is None else task.score.of(reference.arrays()),
        "contenders": rows,
    }


def _metric(task: Task) -> str:
    return "top1" if task.decisions is same_class else "sqnr"


@contextmanager
def _open_quantrt(task: Task, made: _Made) -> Iterator[Run]:
    recipe = load_recipe(ACCURATE)
    config = BuildConfig(
        device=DeviceConfig(libraries=("openvino",)),
        precisions=frozenset({"fp32", recipe.precision}),
        calibration=recipe.calibration_config(),
        quantize=recipe.quantize_config(),
        budget=Budget(metric=_metric(task), max_drop_ratio=CONTROLLED_DROP_RATIO),
        bench=BUILD_BENCH,
    )
    samples = task.calibration
    began = time.perf_counter()
    judged_on = _with_classes(task) if _metric(task) == "top1" else samples
    with build(task.path, config=config, calibration=samples, validation=judged_on) as engine:
        made.seconds = time.perf_counter() - began
        layers = [layer for layer in engine.plan.layers if layer.op_type in NODES]
        made.products = len(layers)
        made.in_floats = sum(layer.precision != recipe.precision for layer in layers)
        yield engine.run


@contextmanager
def _open_nncf(task: Task, made: _Made) -> Iterator[Run]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "controlled.xml")
        began = time.perf_counter()
        nncf_controlled(task, task.path, path, task.calibration)
        made.seconds = time.perf_counter() - began
        made.products, made.in_floats = _count_products(path)
        runner = open_openvino(path, precision="f32")
        yield lambda inputs: runner.run(dict(inputs))


def _with_classes(task: Task) -> list[dict[str, Any]]:
    """The calibration samples, each with the class that FP32 finds."""
    floats = open_ort(task.path)
    return [{**feed, "labels": next(iter(floats.run(feed).values())).argmax(-1)} for feed in task.calibration]


def _count_products(path: Path) -> tuple[int, int]:
    """Products of an OpenVINO model, and those that do not read what was just quantized."""
    import openvino

    products = [
        node for node in openvino.Core().read_model(path).get_ops() if node.get_type_name() in OPERATIONS
    ]
    return len(products), sum(not _reads_codes(node.input_value(0).get_node()) for node in products)


def _reads_codes(node: Any) -> bool:
    """Whether values come from a FakeQuantize, through nothing but moves."""
    while node.get_type_name() in MOVES:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "FakeQuantize")


def page(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    models = results["models"]
    is_quiet = all(model["is_quiet"] for model in models.values())
    quiet = "on a machine with nothing else to do" if is_quiet else "on a machine that others used too"
    head = HEAD.format(machine=machine_line(results["environment"]), quiet=quiet)
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
        "commit",
    ]
    rows = [_row(name, contender, model) for name, model in models.items() for contender in (OURS, NNCF)]
    return head + table(columns, rows) + _failures(models)


def _row(name: str, contender: str, model: dict[str, Any]) -> list[str]:
    row = model["contenders"][contender]
    if "error" in row:
        return [name, contender, "failed", *[""] * 7]
    return [
        name,
        contender,
        number(row.get("agreement_ratio"), 4),
        number(next(iter(row["sqnr_db"].values())), 2),
        model["score_name"],
        number(model["float_score"], 4),
        number(row.get("score"), 4),
        f"{row['in_floats']} of {row['products']}",
        number(row["seconds"], 0),
        model["commit"],
    ]


def _failures(models: dict[str, Any]) -> str:
    return "".join(
        f"\n{name}, {contender}: `{row['error']}`\n"
        for name, model in models.items()
        for contender, row in model["contenders"].items()
        if "error" in row
    )


if __name__ == "__main__":
    main()
