# SPDX-License-Identifier: Apache-2.0
"""What each quantization algorithm gains on real models: `python -m benchmarks.algorithms MODELS [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled (all-MiniLM-L6-v2 and vit_base_patch16_224 are used); the
other models and all data come from the data folder. Every column is the same model on the same calibration
samples, judged on the same others: signal over quantization noise of the first output against FP32, both in
ONNX Runtime, and the model's own metric. `plain` is min-max ranges and weights per channel, nothing else;
each algorithm is added to it alone, and the recipes combine them. Scaled channels, adaptive rounding and
searched ranges that the outputs do not gain by are not taken, as in a build: then the figure is that of
`plain`. Weights in 4 bits leave activations in floats. A second run adds its models to the results.
"""

__all__ = ["VARIANTS", "measure"]

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.pages.algorithms import CALIBRATION, INT4, JUDGED, RANDOM, RECIPES, SCORED, algorithms_page
from benchmarks.record import commit, load_results, other_machine, write_results
from benchmarks.tasks.inputs import make_inputs
from benchmarks.tasks.real_tasks import TASK_NAMES, load_task
from benchmarks.tasks.task import Task, rows
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import QuantRtError
from quantrt.ir.session import float_session
from quantrt.model.file.save import save_model
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.quantize.fit.equalized import LEAST_SAMPLES, make_twins
from quantrt.quantize.fit.fit import FIT_SAMPLES, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.weight_only import quantize_weights
from quantrt.recipe import load_recipe

Made = tuple[str, ir.Model | None, dict[str, Any]]
"""A column's name, what it is judged on, and what else is known of it."""

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "algorithms.json"
RANDOM_SAMPLES = 32
"""Of RANDOM, for calibration and as many others to judge on."""

PLAIN = {"bias_correction": False, "equalization": False}


@dataclass(frozen=True)
class Variant:
    """What one column is made with."""

    calibration: Mapping[str, Any] = field(default_factory=dict)
    quantize: Mapping[str, Any] = field(default_factory=dict)


def _recipe(name: str) -> Variant:
    recipe = load_recipe(name)
    return Variant(recipe.calibration, recipe.quantize)


VARIANTS: dict[str, Variant] = {
    "plain": Variant({"method": "minmax"}, PLAIN),
    "ranges": Variant({"method": "auto"}, PLAIN),
    "bias correction": Variant({"method": "minmax"}, {**PLAIN, "bias_correction": True}),
    "equalization": Variant({"method": "minmax"}, {**PLAIN, "equalization": True}),
    "SmoothQuant, folded": Variant({"method": "minmax"}, {**PLAIN, "smoothing": "folded"}),
    "SmoothQuant": Variant({"method": "minmax"}, {**PLAIN, "smoothing": "multiplied"}),
    "AdaRound": Variant({"method": "minmax"}, {**PLAIN, "adaptive_rounding": True}),
    "range search": Variant({"method": "minmax"}, {**PLAIN, "range_search": True}),
    **{name: _recipe(name) for name in RECIPES},
}

SCALING = ("equalization", "SmoothQuant, folded", "SmoothQuant")
"""Those that change the model itself, where it has edges whose channels can be scaled."""

NOTHING_TO_SCALE = "no edge between its layers has channels that gain by being scaled, as predicted"


def main() -> None:
    parser = argparse.ArgumentParser(description="What each quantization algorithm gains on real models.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument(
        "names", nargs="*", default=(*TASK_NAMES, RANDOM), metavar="NAME", help="default: all models"
    )
    parser.add_argument(
        "--column", action="append", choices=[*VARIANTS, *INT4], help="only these, repeatable (default: all)"
    )
    parser.add_argument(
        "--judged",
        type=int,
        metavar="N",
        help=f"judge on N samples, without the model's own metric (default: {JUDGED}, and every label)",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; tables go beside it")
    args = parser.parse_args()
    for name in args.names:
        for row in measure(_task(name, args.models), args.column or [*VARIANTS, *INT4], args.judged):
            _add(args.out, name, row)


def _task(name: str, models: Path) -> Task:
    if name != RANDOM:
        return load_task(name, models)
    calibration, validation = (make_inputs(name, RANDOM_SAMPLES, seed) for seed in (1, 2))
    return Task(
        name,
        models / f"{name}.onnx",
        rows(calibration, 1),
        rows(validation, 1),
        np.arange(RANDOM_SAMPLES),
        validation,
        is_transformer=True,
    )


def _add(path: Path, name: str, row: dict[str, Any]) -> None:
    """Write a model's figures beside those that the file has."""
    results = load_results(path, any_machine=True)
    model = results["models"].get(name, {})
    judged = model.get("judged_samples")  # once the same for all columns of a model
    earlier = {
        variant: ({"judged_samples": judged} if judged else {}) | figures
        for variant, figures in model.get("variants", {}).items()
    }
    measured = {variant: figures | other_machine(results) for variant, figures in row["variants"].items()}
    metric = row if row["score_name"] else {"score_name": "", "float_score": None} | model
    results["models"][name] = row | {
        "score_name": metric["score_name"],
        "float_score": metric["float_score"],
        "variants": {**earlier, **measured},
    }
    order = [task for task in (*TASK_NAMES, RANDOM) if task in results["models"]]
    results["models"] = {task: results["models"][task] for task in order}
    write_results(path, results, algorithms_page(results))


def measure(task: Task, columns: Sequence[str], limit: int | None = None) -> Iterator[dict[str, Any]]:
    """These columns of one task's model, one after another.

    Args:
        limit: samples to judge on, from all parts of the data, without a metric that wants every label.
    """
    if limit is not None:
        spread = itertools.islice(task.validation, 0, None, max(1, len(task.sources) // limit))
        task = replace(task, score=None, validation=list(spread))
    model = load_model(task.path)
    wanted = _first_outputs(model.graph, task, _labelled(task) if limit is None else limit)
    judged = min(len(wanted), limit or (len(wanted) if task.decisions is None else JUDGED))
    shared = {
        "score_name": "" if task.score is None else task.score.name,
        "float_score": None if task.score is None else task.score.of([wanted]),
    }
    for name, graph, row in itertools.chain(_int8(task, model, columns), _int4(task, model, columns)):
        figures = {} if graph is None else _judge(task, name, graph, wanted, judged)
        figures |= {"judged_samples": judged, "commit": commit()}
        yield shared | {"variants": {name: row | figures}}


def _int8(task: Task, model: Model, columns: Sequence[str]) -> Iterator[Made]:
    if VARIANTS.keys().isdisjoint(columns):
        return
    count = min(CALIBRATION, len(task.calibration))
    samples = open_dataset(task.calibration[:count], model.inputs)
    stats = collect(model, observed_values(model, (ORT,), QuantizeConfig()), samples, CalibrationConfig())
    batches = [batch.inputs for batch in samples.batches(8, FIT_SAMPLES)]
    configs = {name: QuantizeConfig(**VARIANTS[name].quantize) for name in columns if name in VARIANTS}
    is_smoothed = any(config.smoothing != "off" for config in configs.values())
    twins = make_twins(model, samples, QuantizeConfig(smoothing="multiplied" if is_smoothed else "off"))
    for name, config in configs.items():
        wanted = tuple(twin for twin in twins if _is_wanted(twin.label, config))
        if name in SCALING and not wanted:
            is_few = name == "equalization" and count < LEAST_SAMPLES
            few = f"equalization wants {LEAST_SAMPLES} samples, and there are {count}"
            yield name, None, {"why_not": few if is_few else NOTHING_TO_SCALE}
            continue
        reference = observe_reference(model, batches, config, wanted)
        options = CalibrationConfig(**VARIANTS[name].calibration)
        fitted = fit(model, stats, ORT, reference, config=config, calibration=options)
        print(f"{task.name}: {name}: {fitted.method}", file=sys.stderr, flush=True)
        yield name, write(fitted.model), {"method": fitted.method}


def _is_wanted(label: str, config: QuantizeConfig) -> bool:
    """Whether a configuration would have made the twin called `label`."""
    if "equalized" in label:
        return config.equalization
    return config.smoothing == "multiplied" or (
        config.smoothing == "folded" and "multiplications" not in label
    )


def _int4(task: Task, model: Model, columns: Sequence[str]) -> Iterator[Made]:
    batches = [dict(feed) for feed in task.calibration[:CALIBRATION]]
    for name in (name for name in columns if name in INT4):
        config = QuantizeConfig(weights="int4", weight_rounding=INT4[name])
        start = time.perf_counter()
        try:
            made = quantize_weights(model, batches, config)
        except QuantRtError as error:
            yield name, None, {"why_not": error.message}
            continue
        print(f"{task.name}: {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "int4.onnx"
            save_model(made.graph, path)
            size_ratio = path.stat().st_size / task.path.stat().st_size
        yield name, made.graph, {"size_ratio": size_ratio, "scaled": made.scaled}


def _judge(task: Task, name: str, graph: ir.Model, wanted: np.ndarray, judged: int) -> dict[str, Any]:
    """The figures of one column's graph against FP32's outputs."""
    has_score = task.score is not None and (task.decisions is None or name in SCORED)
    got = _first_outputs(graph, task, _labelled(task) if has_score else judged)
    noise = np.square(got[:judged].astype(np.float64) - wanted[:judged]).sum()
    signal = np.square(wanted[:judged].astype(np.float64)).sum()
    figures = {"sqnr_db": float(10 * np.log10(signal / noise))}
    if task.decisions is not None:
        figures["agreement_ratio"] = float(np.mean(task.decisions([wanted[:judged]], [got[:judged]])))
    if task.score is not None and has_score:
        figures["score"] = task.score.of([got])
    return figures


def _labelled(task: Task) -> int | None:
    """Samples from the first that have labels, JUDGED at least; None for all of them."""
    if task.decisions is None:
        return None
    return JUDGED if task.score is None else max(JUDGED, len(np.unique(task.sources)))


def _first_outputs(graph: ir.Model, task: Task, limit: int | None) -> np.ndarray:
    """A graph's first output for the first samples, some more where they end inside a batch."""
    session = float_session(graph, threads=1)  # threads that wait for each other spin on a busy machine
    rows: list[np.ndarray] = []
    count = 0
    for feed in task.validation:
        rows.append(session.run(None, dict(feed))[0])
        count += len(rows[-1])
        if limit is not None and count >= limit:
            break
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
