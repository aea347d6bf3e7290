# SPDX-License-Identifier: Apache-2.0
"""What chance in the calibration samples does to a metric: `python -m benchmarks.calibration_draws MODELS`.

MODELS is the folder that `benchmarks.models` filled (all-MiniLM-L6-v2 is used). The model is quantized from
one draw of STS-B's sentences after another, which share none, and judged on the same pairs each time: by
QuantRT without a recipe and by `accurate`, in ONNX Runtime, and by NNCF's scheme for transformers in
OpenVINO.
"""

__all__ = ["draws_page"]

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders import Contender, Run, peer_contenders
from benchmarks.judge import Outputs, float_outputs, judge
from benchmarks.page import number, table
from benchmarks.peers import open_ort
from benchmarks.real_tasks import TEXT_TASK, load_task, sentence_draws
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.task import Task
from quantrt.calibrate.dataset import open_dataset
from quantrt.model.load import load_model
from quantrt.model.save import save_model
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.recipe import load_recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "calibration-draws-cpu.json"
RECIPES = ("default", "accurate")
PEER = "nncf transformer"
"""The best of all peers on this model."""

HEAD = """# Other calibration samples, another metric (CPU)

{machine}

all-MiniLM-L6-v2 in int8, quantized from {samples} sentences of STS-B at a time; the draws share no sentence,
and the first is that of [accuracy-cpu.md](accuracy-cpu.md). All are judged on the same {pairs} pairs of
others, by Spearman's correlation, which is {floats:.4f} of FP32, and by signal over quantization noise.
`deviation` is the standard deviation over the draws. The errors on that page are of the choice of the pairs
alone: this comes to them. `{peer}` is `nncf.quantize` with `model_type=TRANSFORMER`, the best peer there.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 &&
python -m benchmarks.calibration_draws MODELS`

"""


def main() -> None:
    parser = argparse.ArgumentParser(description="A metric by draws of calibration samples.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out)
    task = load_task(TEXT_TASK, args.models)
    assert task.score is not None
    reference = float_outputs(task)
    results["models"] = {
        TEXT_TASK: {
            "samples": len(task.calibration),
            "pairs": reference.samples // 2,
            "float_score": task.score.of(reference.arrays()),
            "draws": [],
        }
    }
    for calibration in sentence_draws():
        row = _measure(replace(task, calibration=calibration), reference)
        print(row, flush=True)
        results["models"][TEXT_TASK]["draws"].append(row)
        write_results(args.out, results, draws_page(results))


def _measure(task: Task, reference: Outputs) -> dict[str, Any]:
    """Every contender's figures, from one draw."""
    ours = [Contender(name, partial(_open_ours, task, name)) for name in RECIPES]
    peers = [contender for contender in peer_contenders(task, control_limit_s=0) if contender.name == PEER]
    judged = {contender.name: judge(contender, task, reference).row for contender in (*ours, *peers)}
    return {"commit": commit(), "contenders": judged}


@contextmanager
def _open_ours(task: Task, name: str) -> Iterator[Run]:
    recipe = load_recipe(name)
    config, options = recipe.quantize_config(), recipe.calibration_config()
    model = load_model(task.path)
    samples = open_dataset(task.calibration, model.inputs)
    stats, reference = observe(model, observed_values(model, (ORT,), config), samples, config, options)
    fitted = fit(model, stats, ORT, reference, config=config, calibration=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantized.onnx")
        save_model(write(fitted.model), path)
        runner = open_ort(path)
        yield lambda inputs: runner.run(dict(inputs))


def draws_page(results: Mapping[str, Any]) -> str:
    """Markdown: a row per contender and figure, a column per draw."""
    model = results["models"][TEXT_TASK]
    draws = model["draws"]
    head = HEAD.format(
        machine=machine_line(results["environment"]),
        samples=model["samples"],
        pairs=model["pairs"],
        floats=model["float_score"],
        peer=PEER,
    )
    figures: dict[str, tuple[Callable[[Mapping[str, Any]], float], int]] = {
        "Spearman": (lambda row: float(row["score"]), 4),
        "SQNR, dB": (lambda row: float(next(iter(row["sqnr_db"].values()))), 2),
    }
    rows = []
    for figure, (value, digits) in figures.items():
        for name in (*RECIPES, PEER):
            found = [value(draw["contenders"][name]) for draw in draws]
            spread = float(np.std(found, ddof=1)) if len(found) > 1 else None
            means = [number(float(np.mean(found)), digits), number(spread, digits)]
            rows.append([figure, name, *(number(one, digits) for one in found), *means])
    columns = [
        "figure",
        "made by",
        *(f"draw {index + 1}" for index in range(len(draws))),
        "mean",
        "deviation",
    ]
    commits = ", ".join(sorted({draw["commit"] for draw in draws}))
    return head + table(columns, rows) + f"\nAt {commits}.\n"


if __name__ == "__main__":
    main()
