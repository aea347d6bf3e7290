# SPDX-License-Identifier: Apache-2.0
"""What chance in the calibration samples does to a metric: `python -m benchmarks.calibration_draws MODELS`.

MODELS is the folder that `benchmarks.models` filled (all-MiniLM-L6-v2 is used). The model is quantized from
one draw of STS-B's sentences after another and judged on the same pairs each time: by QuantRT without a
recipe and by `accurate`, in ONNX Runtime, and by NNCF's scheme for transformers in OpenVINO. Beside them
stand FP32's embeddings with random noise of the same power as that of `accurate`.

    --orders N    orders of the sentences, each of three draws that share none (default: 3)
"""

__all__ = ["draws_page"]

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pages.page import number, table
from benchmarks.peers.contenders import ACCURATE, Contender, Opened, peer_contenders
from benchmarks.peers.peers import open_ort
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.judge import Outputs, float_outputs, judge
from benchmarks.tasks.paired import Judged, mean_difference
from benchmarks.tasks.real_tasks import TEXT_TASK, load_task, sentence_draws
from benchmarks.tasks.task import Score, Task
from quantrt.calibrate.dataset import open_dataset
from quantrt.model.file.save import save_model
from quantrt.model.load import load_model
from quantrt.quantize.fit.equalized import EQUALIZED, STREAMS
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.recipe import load_recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "calibration-draws-cpu.json"
DEFAULT = "default"
RECIPES = (DEFAULT, ACCURATE)
PEER = "nncf transformer"
"""The best of all peers on this model."""
ORDERS = 3
NOISES = 20
"""Draws of random noise."""

Array = npt.NDArray[Any]

HEAD = """# Other calibration samples, another metric (CPU)

{machine}

all-MiniLM-L6-v2 in int8, quantized from {samples} sentences of STS-B at a time. Every three draws share no
sentence: the first three are in the file's order, the first of all is that of
[accuracy-cpu.md](accuracy-cpu.md), and the others cut other orders of the same 1000 sentences. All are judged
on the same {pairs} pairs of others, by Spearman's correlation, which is {floats:.4f} of FP32, and by signal
over quantization noise. `{peer}` is `nncf.quantize` with `model_type=TRANSFORMER`, the best peer there.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 &&
python -m benchmarks.calibration_draws MODELS`

"""

DIFFERENCES = """
## Spearman's correlation: how much of the difference is chance

Differences are of one draw's two models, and their mean is over the {draws} draws. The error of the draws is
their standard deviation over the square root of how many there are; it is of these pairs of sentences alone.
The error of the pairs is the standard deviation of that mean over 2000 choices of pairs, with replacement.

"""

NOISE = """
FP32's embeddings themselves, with independent Gaussian noise {sqnr:.1f} dB below them, have {mean:.4f} on
average over {count} draws of the noise, and {deviation:.4f} of standard deviation.

"""


@dataclass(frozen=True)
class Drawn:
    """What one draw of calibration samples gave: every contender's figures."""

    commit: str
    judged: Mapping[str, Judged]

    @property
    def row(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"commit": self.commit, "contenders": {name: one.row for name, one in self.judged.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description="A metric by draws of calibration samples.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("--orders", type=int, default=ORDERS, metavar="N", help="orders of the sentences")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out)
    task = load_task(TEXT_TASK, args.models)
    assert task.score is not None
    reference = float_outputs(task)
    floats = Judged({"score": task.score.of(reference.arrays())})
    floats.values = task.score.values(reference.arrays())
    model: dict[str, Any] = {
        "samples": len(task.calibration),
        "pairs": reference.samples // 2,
        "float_score": floats.row["score"],
    }
    results["models"] = {TEXT_TASK: model}
    draws: list[Drawn] = []
    for calibration in sentence_draws(args.orders):
        draws.append(_measure(replace(task, calibration=calibration), reference))
        print(draws[-1].row, flush=True)
        model["draws"] = [draw.row for draw in draws]
        model["differences"] = _differences(draws, floats, task.score)
        model["noise"] = _noise(task.score, reference, draws)
        write_results(args.out, results, draws_page(results))


def _measure(task: Task, reference: Outputs) -> Drawn:
    """Every contender's figures, from one draw."""
    ours = [Contender(name, partial(_open, model)) for name, model in _quantized(task).items()]
    peers = [contender for contender in peer_contenders(task, control_limit_s=0) if contender.name == PEER]
    judged = {contender.name: judge(contender, task, reference) for contender in (*ours, *peers)}
    return Drawn(commit(), judged)


def _quantized(task: Task) -> dict[str, QuantizedModel]:
    """The model by each of RECIPES, calibrated once; `default` tries no smoothed channels."""
    model = load_model(task.path)
    recipes = {name: load_recipe(name) for name in RECIPES}
    configs = {name: recipe.quantize_config() for name, recipe in recipes.items()}
    options = recipes[ACCURATE].calibration_config()
    samples = open_dataset(task.calibration, model.inputs)
    names = observed_values(model, (ORT,), configs[ACCURATE])
    stats, reference = observe(model, names, samples, configs[ACCURATE], options)
    equalized = tuple(twin for twin in reference.twins if twin.label in (EQUALIZED, STREAMS))
    seen = {ACCURATE: reference, DEFAULT: replace(reference, twins=equalized)}
    return {
        name: fit(model, stats, ORT, seen[name], config=configs[name], calibration=options).model
        for name in RECIPES
    }


@contextmanager
def _open(quantized: QuantizedModel) -> Iterator[Opened]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantized.onnx")
        save_model(write(quantized), path)
        runner = open_ort(path)
        yield Opened(lambda inputs: runner.run(dict(inputs)))


def _differences(draws: Sequence[Drawn], floats: Judged, score: Score) -> list[dict[str, Any]]:
    """Of each contender's score to FP32's, and of ours to the peer's: mean and errors, JSON-ready."""
    models = {name: [draw.judged[name] for draw in draws] for name in (*RECIPES, PEER)}
    pairs = [(name, "FP32", [floats] * len(draws)) for name in models]
    pairs += [(name, PEER, models[PEER]) for name in RECIPES]
    return [
        {"of": name, "to": other, **mean_difference(models[name], theirs, score)}
        for name, other, theirs in pairs
    ]


def _noise(score: Score, reference: Outputs, draws: Sequence[Drawn]) -> dict[str, float]:
    """FP32's score with random noise of the power of `accurate`'s mean one."""
    (name,) = reference.names
    sqnr = float(np.mean([draw.judged[ACCURATE].row["sqnr_db"][name] for draw in draws]))
    (outputs,) = reference.arrays()
    rng = np.random.default_rng(0)
    spread = float(np.sqrt(np.mean(np.square(outputs)) * 10 ** (-sqnr / 10)))
    found = [
        score.of([outputs + (spread * rng.standard_normal(outputs.shape)).astype(np.float32)])
        for _ in range(NOISES)
    ]
    return {
        "sqnr_db": sqnr,
        "count": NOISES,
        "mean": float(np.mean(found)),
        "deviation": float(np.std(found, ddof=1)),
    }


def draws_page(results: Mapping[str, Any]) -> str:
    """Markdown: a row per draw, then the differences."""
    model = results["models"][TEXT_TASK]
    draws, noise = model["draws"], model["noise"]
    head = HEAD.format(
        machine=machine_line(results["environment"]),
        samples=model["samples"],
        pairs=model["pairs"],
        floats=model["float_score"],
        peer=PEER,
    )
    commits = ", ".join(sorted({draw["commit"] for draw in draws}))
    return "".join(
        (
            head,
            _by_draw(draws),
            DIFFERENCES.format(draws=len(draws)),
            _by_difference(model["differences"]),
            NOISE.format(
                sqnr=noise["sqnr_db"], mean=noise["mean"], count=noise["count"], deviation=noise["deviation"]
            ),
            f"At {commits}.\n",
        )
    )


def _by_draw(draws: Sequence[Mapping[str, Any]]) -> str:
    """A row for each draw, their mean and their standard deviation."""
    figures: dict[str, tuple[Callable[[Mapping[str, Any]], float], int]] = {
        "Spearman": (lambda row: float(row["score"]), 4),
        "dB": (lambda row: float(next(iter(row["sqnr_db"].values()))), 2),
    }
    columns = ["draw"]
    values: list[tuple[list[float], int]] = []
    for figure, (value, digits) in figures.items():
        for name in (*RECIPES, PEER):
            columns.append(f"{name}, {figure}")
            values.append(([value(draw["contenders"][name]) for draw in draws], digits))
    rows = [
        [str(index + 1), *(number(found[index], digits) for found, digits in values)]
        for index in range(len(draws))
    ]
    rows.append(["mean", *(number(float(np.mean(found)), digits) for found, digits in values)])
    if len(draws) > 1:
        rows.append(
            ["deviation", *(number(float(np.std(found, ddof=1)), digits) for found, digits in values)]
        )
    return table(columns, rows)


def _by_difference(differences: Sequence[Mapping[str, Any]]) -> str:
    """A row for each difference."""
    columns = ["of", "to", "mean difference", "error of the draws", "error of the pairs"]
    rows = [
        [
            row["of"],
            row["to"],
            f"{row['difference']:+.5f}",
            number(row["error_of_draws"], 5),
            number(row["error_of_sources"], 5),
        ]
        for row in differences
    ]
    return table(columns, rows)


if __name__ == "__main__":
    main()
