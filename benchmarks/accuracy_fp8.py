# SPDX-License-Identifier: Apache-2.0
"""Accuracy of FP8 beside int8 on real transformers: `python -m benchmarks.accuracy_fp8 MODELS [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled (only all-MiniLM-L6-v2 is used). Each model is quantized
by the rules of an engine for a GPU, from the same calibration samples, and written as QuantizeLinear and
DequantizeLinear, which ONNX Runtime computes: the codes are those of the engine, sums and everything else are
float32. FP32 on the same samples is what they are held against. Results go to docs/results/accuracy-fp8.json,
a page beside it. A second run adds its models.
"""

__all__ = ["measure", "page"]

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pages.page import number
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.judge import beside_floats, session_outputs
from benchmarks.tasks.real_tasks import load_task
from benchmarks.tasks.task import Score, Task, rows
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BuildConfig
from quantrt.ir.session import float_session
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import FIT_SAMPLES, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-fp8.json"
NAMES = ("cifar10_vit_tiny_d9", "all-MiniLM-L6-v2")
TARGETS = (CUDA, CUDA_FP8)
BATCH = 50
MOST_PICTURES = 1000

HEAD = """# Accuracy of FP8

Real transformers, quantized by the rules of an engine for a GPU, in ONNX Runtime as QuantizeLinear and DequantizeLinear: the
codes are the engine's, everything between them is float32. int8 and FP8 (E4M3) have the same calibration samples. FP8 quantizes
products with a weight alone, over whole ranges, weights per channel; int8 has zero points of 0 too, and ranges by the better of
two methods. Embedding tables are int8 in both. SQNR and cosine are of the first output against FP32, over the validation
samples. A score of a thousand pictures has a standard error of about one point: smaller differences say nothing. Written by `python -m benchmarks.accuracy_fp8 MODELS`; figures in [accuracy-fp8.json](accuracy-fp8.json).
"""  # noqa: E501

Array = npt.NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of FP8 and int8 on real transformers.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    parser.add_argument(
        "--most", type=int, default=3000, metavar="N", help="with more samples, pictures alone"
    )
    args = parser.parse_args()
    results = load_results(args.out)
    for name in args.names:
        row = measure(load_task(name, args.models), args.most)
        results["models"][name] = row
        write_results(args.out, results, page(results))
        print(name, row)


def measure(task: Task, most: int) -> dict[str, Any]:
    """FP32, and the model in each kind of codes.

    Args:
        most: validation samples; of a classifier with more, those that a build is judged on are taken.
    """
    task = task if len(task.sources) <= most else _labelled(task)
    model, config = for_gpu(load_model(task.path)), BuildConfig()
    samples = open_dataset(task.calibration, model.inputs)
    stats = collect(model, observed_values(model, TARGETS, config.quantize), samples, config.calibration)
    batches = [batch.inputs for batch in samples.batches(1, FIT_SAMPLES)]
    reference = observe_reference(model, batches, config.quantize)
    wanted = session_outputs(float_session(model.graph), task)
    found = {"fp32": _judge(task, wanted, wanted)}
    for target in TARGETS:
        fitted = fit(model, stats, target, reference, config=config.quantize, calibration=config.calibration)
        quantized = sum(row.is_int8 for row in fitted.model.placement.decisions)
        row = _judge(task, wanted, session_outputs(float_session(write(fitted.model)), task))
        found[target.precision] = {**row, "quantized_nodes": quantized, "ranges": fitted.method}
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": len(wanted[0]),
        "score_name": "" if task.score is None else task.score.name,
        "note": task.note,
        "rows": found,
    }


def _labelled(task: Task) -> Task:
    """A classifier on the first of the pictures that a build is judged on."""
    arrays = {name: array[:MOST_PICTURES] for name, array in task.build_validation.items()}
    labels = arrays.pop("labels")
    score = Score(
        "top-1",
        lambda outputs: np.asarray(outputs[0].argmax(1) == labels, np.float64),
        lambda values, numbers: float(np.mean(values[numbers])),
    )
    feeds = rows(arrays, BATCH)
    return replace(task, validation=feeds, sources=np.arange(len(labels)), score=score, note="")


def _judge(task: Task, wanted: list[Array], got: list[Array]) -> dict[str, Any]:
    a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (wanted[0], got[0]))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return {**beside_floats(task, wanted, got), "cosine": float(np.mean((a * b).sum(1) / lengths))}


def page(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: dict[str, Any]) -> Iterator[str]:
    yield HEAD
    yield machine_line(results["environment"])
    for name, model in results["models"].items():
        yield from ("", f"## {name}", "")
        note = f" ({model['note']})" if model["note"] else ""
        yield (
            f"{model['calibration_samples']} samples for calibration, {model['validation_samples']} for "
            f"validation{note}. Commit {model['commit']}."
        )
        score = model["score_name"] or "score"
        yield from ("", f"| | {score} | agrees with FP32 | SQNR dB | cosine | nodes in codes | ranges |")
        yield "|---|---|---|---|---|---|---|"
        for precision, row in model["rows"].items():
            cells = (
                precision,
                number(row["score"], 4),
                number(row["agreement_ratio"], 4),
                number(row["sqnr_db"], 2),
                number(row["cosine"], 5),
                str(row.get("quantized_nodes", "")),
                row.get("ranges", ""),
            )
            yield "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
