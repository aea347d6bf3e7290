# SPDX-License-Identifier: Apache-2.0
"""What scales per token are worth to trained transformers: `python -m benchmarks.per_token MODELS OUT.json`.

MODELS is the folder that `benchmarks.models` filled (all-MiniLM-L6-v2 is used); the vision transformer and
all data come from the data folder. Every column is the same model in int8 by the placement of ONNX Runtime,
judged there on the same data: signal over quantization noise of the first output against FP32, and the
model's own metric. One model more has outlier channels planted. A second run replaces what it measures.
"""

__all__ = ["VARIANTS", "Variant"]

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.pages.per_token import per_token_page
from benchmarks.record import commit, load_results, write_results
from benchmarks.tasks.planted import plant_stream_outliers
from benchmarks.tasks.real_tasks import TEXT_TASK, load_task
from benchmarks.tasks.task import Task
from quantrt.calibrate.dataset import Dataset, open_dataset, random_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.quantize.fit.fit import fit, sample_reference
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.onnxruntime import ORT

VIT = "cifar10_vit_tiny_d9"
PLANTED = f"{VIT}, outlier channels"
MODELS = (TEXT_TASK, VIT, PLANTED)
CALIBRATION = 128
RANDOM_SAMPLES = 32

BLOCKS, CHANNELS, FACTOR = range(9), 4, 32.0
"""Of the vision transformer: where channels are planted, how many in each, and how many times as large."""

PER_TOKEN = {"activations": "per-token"}
SMOOTHED = {"smoothing": "multiplied"}


@dataclass(frozen=True)
class Variant:
    """How one column is quantized.

    Attributes:
        data: of calibration: "real", "random" (inputs of the right shapes), or "none".
    """

    data: str = "real"
    quantize: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = {
    "static, random data": Variant("random"),
    "per token, no data": Variant("none", PER_TOKEN),
    "static": Variant(),
    "per token": Variant("real", PER_TOKEN),
    "static, SmoothQuant": Variant("real", SMOOTHED),
    "per token, SmoothQuant": Variant("real", {**PER_TOKEN, **SMOOTHED}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Scales per token against static ones.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("out", type=Path, help="JSON file; a page goes beside it")
    parser.add_argument("names", nargs="*", metavar="NAME", default=MODELS, help="default: all models")
    parser.add_argument(
        "--column", action="append", choices=[*VARIANTS], help="only these, repeatable (default: all)"
    )
    args = parser.parse_args()
    for name in args.names:
        with tempfile.TemporaryDirectory() as folder:
            row = _measure(_task(name, args.models, Path(folder)), args.column or [*VARIANTS])
        results = load_results(args.out, any_machine=True)
        earlier = results["models"].get(name, {}).get("variants", {})
        columns = {**earlier, **row["variants"]}
        row["variants"] = {column: columns[column] for column in VARIANTS if column in columns}
        results["models"][name] = row
        results["models"] = {
            known: results["models"][known] for known in MODELS if known in results["models"]
        }
        write_results(args.out, results, per_token_page(results))


def _task(name: str, models: Path, folder: Path) -> Task:
    if name != PLANTED:
        return load_task(name, models)
    task = load_task(VIT, models)
    path = folder / "planted.onnx"
    planted = plant_stream_outliers(
        onnx.load(task.path), tuple(BLOCKS), channels=CHANNELS, factor=FACTOR, seed=0
    )
    onnx.save(planted, path)
    return replace(task, path=path)


def _measure(task: Task, columns: Sequence[str]) -> dict[str, Any]:
    model = load_model(task.path)
    wanted = _outputs(task, float_session(model.graph, threads=1))
    row: dict[str, Any] = {"samples": len(wanted), "variants": {}}
    if task.score is not None:
        row |= {"score_name": task.score.name, "float_score": task.score.of([wanted])}
    for name in columns:
        made = _quantized(model, task, VARIANTS[name])
        got = _outputs(task, float_session(write(made), threads=1))
        noise = np.square(got.astype(np.float64) - wanted).sum()
        row["variants"][name] = {
            "sqnr_db": float(10 * np.log10(np.square(wanted.astype(np.float64)).sum() / noise)),
            "score": None if task.score is None else task.score.of([got]),
            "commit": commit(),
            "int8_nodes": sum(decision.is_int8 for decision in made.placement.decisions),
        }
        print(task.name, name, row["variants"][name], file=sys.stderr, flush=True)
    return row


def _quantized(model: Model, task: Task, variant: Variant) -> QuantizedModel:
    config, options = QuantizeConfig(**variant.quantize), CalibrationConfig()
    samples = _samples(model, task, variant)
    if samples is None:
        stats, reference = None, sample_reference(model, None, config, options)
    else:
        names = observed_values(model, (ORT,), config)
        stats, reference = observe(model, names, samples, config, options)
    return fit(model, stats, ORT, reference, config=config, calibration=options).model


def _samples(model: Model, task: Task, variant: Variant) -> Dataset | None:
    if variant.data == "real":
        return open_dataset(task.calibration[:CALIBRATION], model.inputs)
    return random_dataset(model.inputs, RANDOM_SAMPLES, 0) if variant.data == "random" else None


def _outputs(task: Task, session: Any) -> np.ndarray:
    """The first output for all samples."""
    return np.concatenate(list(_batches(task, session)))


def _batches(task: Task, session: Any) -> Iterator[np.ndarray]:
    for feed in task.validation:
        yield session.run(None, dict(feed))[0]


if __name__ == "__main__":
    main()
