# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.algorithms`, and the names of its columns."""

__all__ = ["CALIBRATION", "INT4", "INT8", "JUDGED", "RANDOM", "RECIPES", "SCORED", "algorithms_page"]

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.pages.page import number, table
from benchmarks.record import machine_line, other_machines
from quantrt.quantize.fit.fit import FIT_SAMPLES

CALIBRATION = 128
JUDGED = 1000
"""Samples that signal over noise and agreement are of, at most; embeddings of sentences are all judged."""
LEAST = 500
"""Samples below which the page says how few they are; of some models there are no more than 98."""

RECIPES = ("fast", "default", "accurate")
ALONE = (
    *("plain", "ranges", "bias correction", "equalization", "SmoothQuant, folded", "SmoothQuant"),
    *("AdaRound", "range search"),
)
INT8 = (*ALONE, *RECIPES)

INT4 = {
    "int4 nearest": "nearest",
    "int4 AWQ": "awq",
    "int4 GPTQ": "gptq",
    "int4 AdaRound": "adaround",
    "int4 AWQ, GPTQ": "awq+gptq",
}
"""Columns of weights in 4 bits, with the rounding of each."""

SCORED = (*RECIPES, *INT4)
"""Judged by the model's own metric too, on every sample with a label."""

RANDOM = "vit_base_patch16_224"
"""A large transformer of seeded random weights, for the size of its file; it has no decisions to judge."""

NO_USE, UNMEASURED = "does not apply", "not measured"
"""In place of a figure."""

_INTRODUCTION = f"""\
Every column is the same model, calibrated on the same {CALIBRATION} samples (fewer where there are fewer) and
judged on others, in ONNX Runtime: signal over noise of the first output and agreement on {JUDGED} of them, or
on all sentences, the model's own metric on every sample with a label. `plain` is min-max ranges and weights
per channel; each algorithm is added to it alone, and `fast`, `default` and `accurate` are the recipes. Scaled
channels, weights rounded adaptively and searched ranges are not taken where the outputs do not gain by them
on {FIT_SAMPLES} calibration samples: then the figure is that of `plain`. Bias correction is always taken.
`{NO_USE}` is told of what finds nothing to work on, for a reason in the last table; `{UNMEASURED}` of what
takes many minutes on a larger model. {RANDOM} has seeded random weights and pictures: its row is
of the size of the file, and no model of what a trained one loses, so nothing else is measured of it.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 {RANDOM} &&
python -m benchmarks.algorithms MODELS`, with `--judged N` where fewer samples than these are told below the
first table.
"""


def algorithms_page(results: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    models = results["models"]
    int4 = list(INT4)
    text = f"# Algorithms on real models\n\n{machine_line(results['environment'])}\n"
    text += f"{other_machines(_cells(models))}\n{_INTRODUCTION}"
    text += "\n## `accurate` against `default`\n\n" + _gains(models)
    text += "\n## What they cost of the model's own metric\n\n" + _drops(models)
    text += "\n## int8: signal over quantization noise, dB\n\n" + _table(models, INT8, "sqnr_db", 1, 1)
    text += "\n## int8: decisions that agree with FP32, %\n\n" + _table(
        models, INT8, "agreement_ratio", 100, 2
    )
    text += "\n## Weights in 4 bits, groups of 64: signal over noise, dB\n\n"
    text += _table(models, int4, "sqnr_db", 1, 1)
    text += "\n## Weights in 4 bits: decisions that agree with FP32, %\n\n"
    text += _table(models, int4, "agreement_ratio", 100, 2)
    text += "\n## Weights in 4 bits: size of the file over FP32's\n\n" + _table(
        models, int4, "size_ratio", 1, 3
    )
    return text + "\n## What does not apply\n\n" + _reasons(models)


def _cells(models: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What rows of a model are of another machine than the page: its name, with columns where not all are."""
    for name, row in models.items():
        columns = [column for column, figures in row["variants"].items() if "machine" in figures]
        machines = {row["variants"][column]["machine"] for column in columns}
        for machine in sorted(machines):
            of = [column for column in columns if row["variants"][column]["machine"] == machine]
            some = f" ({'; '.join(of)})" if len(of) < len(row["variants"]) else ""
            yield name + some, {"machine": machine}


def _gains(models: Mapping[str, Any]) -> str:
    """What the recipe of the best accuracy has over that without one, and what it took."""
    rows = []
    for name, row in models.items():
        default, accurate = (row["variants"].get(recipe, {}) for recipe in ("default", "accurate"))
        if "sqnr_db" in default and "sqnr_db" in accurate:
            gain = accurate["sqnr_db"] - default["sqnr_db"]
            figures = [default["sqnr_db"], accurate["sqnr_db"], gain]
            rows.append(
                [name, *(number(figure, 2) for figure in figures), default["method"], accurate["method"]]
            )
    head = ["model", "default, dB", "accurate, dB", "gain, dB", "default took", "accurate took"]
    return table(head, rows) + _few(models)


def _few(models: Mapping[str, Any]) -> str:
    """The models that were judged on less than the others; of some columns alone, these."""
    found = []
    for name, row in models.items():
        counts = {
            variant: figures.get("judged_samples", row.get("judged_samples"))
            for variant, figures in row["variants"].items()
        }
        least = min(counts.values())
        variants = "; ".join(variant for variant, count in counts.items() if count == least)
        if least < LEAST:
            found.append(f"{name} on {least}" + (f" ({variants})" if max(counts.values()) > least else ""))
    return f"\nJudged on few samples: {', '.join(found)}.\n" if found else ""


def _drops(models: Mapping[str, Any]) -> str:
    """By how much less the metric is than FP32's; below zero it is more."""
    rows = [
        [name, row["score_name"], number(row["float_score"], 4)]
        + [
            _cell(row["variants"].get(column, {}), "score", partial(operator.sub, row["float_score"]), 4)
            for column in SCORED
        ]
        for name, row in models.items()
        if row["float_score"] is not None
    ]
    return table(["model", "metric", "FP32", *SCORED], rows)


def _table(models: Mapping[str, Any], columns: Sequence[str], key: str, factor: float, digits: int) -> str:
    rows = []
    for name, row in models.items():
        found = [row["variants"].get(column, {}) for column in columns]
        if any(key in figures for figures in found):
            rows.append([name, *(_cell(figures, key, lambda x: x * factor, digits) for figures in found)])
    return table(["model", *columns], rows)


def _cell(figures: Mapping[str, Any], key: str, scaled: Callable[[float], float], digits: int) -> str:
    """A figure, or why there is none."""
    if "why_not" in figures:
        return NO_USE
    return number(scaled(figures[key]), digits) if key in figures else UNMEASURED


def _reasons(models: Mapping[str, Any]) -> str:
    """Why an algorithm finds nothing to work on in a model; once for all columns of the same reason."""
    rows = []
    for name, row in models.items():
        columns: dict[str, list[str]] = {}
        for column in (*INT8, *INT4):
            if (why := row["variants"].get(column, {}).get("why_not")) is not None:
                columns.setdefault(why, []).append(column)
        rows += [[name, "; ".join(of), why] for why, of in columns.items()]
    return table(["model", "columns", "why"], rows)
