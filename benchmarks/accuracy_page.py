# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.accuracy`."""

__all__ = ["accuracy_page"]

from collections.abc import Callable
from typing import Any

from benchmarks.accuracy_standing import standing
from benchmarks.pages.page import table
from benchmarks.peers.contenders import CONTROL, TO_TARGET
from benchmarks.record import machine_line, other_machines

COLUMNS = (
    "quantrt int8",
    "quantrt onnxruntime",
    "quantrt openvino",
    "accurate onnxruntime",
    "accurate openvino",
    TO_TARGET,
    "ort default",
    "ort entropy",
    "ort percentile",
    "ort u8s8",
    "nncf default",
    "nncf read_model",
    "nncf transformer",
    "nncf control",
    "mo max",
    "mo entropy",
)

HEAD = """# Accuracy of int8 on real models (CPU)

{machine}
{others}
Every column is calibrated on the same samples and judged on others. `ort default` is
`onnxruntime.quantization.quantize_static` and `nncf default` is `nncf.quantize` (run in OpenVINO, f32 for
what is not int8), both with their defaults, on the model as `openvino.convert_model` imports it. `nncf
read_model` is the same on `Core.read_model`'s, which NNCF quantizes elsewhere; `nncf transformer` adds
`model_type=TRANSFORMER`. `quantrt int8` is the faster of QuantRT's two int8 models, as timed on a machine
that others used too: what `quantrt build` would take without a bound on accuracy. Which one that is may be
kept from an earlier row (`--keep-library`), so that a clock's noise does not choose: then the commit and the
machine that it was timed at are told. Both are shown, and both made by the recipe `accurate`.

The other peers, where a row has them: `ort entropy` and `ort percentile` are ONNX Runtime's other
calibrators, `ort u8s8` its documentation's advice for x86 (preprocessed, uint8 activations, weights per
channel). `nncf control` is `nncf.quantize_with_accuracy_control`: layers go back to floats until decisions
agree with FP32's on 99 % of the calibration samples, or, without decisions, outputs differ by less than 1 %
of their power; `accurate to target` is what `quantrt quantize` makes by the recipe to the same target. `mo
max` and `mo entropy` are Model-Optimizer's `modelopt.onnx.quantization.quantize`{version} to int8, what is
not int8 in f32, run in ONNX Runtime. What a tool leaves in floats is its own choice: `nncf control` goes back
to floats layer by layer, while `accurate` has every layer in int8 that can be, but for residual sums, and
layers that read the model's inputs where these gain 3 dB by it; how many products each leaves in floats is
told below. What `quantrt build` makes to that target, and in what time, is in
[accuracy-control-cpu.md](accuracy-control-cpu.md). An empty column was not measured (`--no-control`, or no
`--model-optimizer`). A contender whose tool or library refuses the model, leaves it as it is, so that none of
its products is computed on codes, or is not done in the time it was given (`--control-limit-s`), is `failed`,
for a reason that is told at the end.

Agreement asks how often a model decides as FP32 does. It needs no labels, so it is measured on all pictures
at hand that are not for calibration, and where these are few on fixed views of them (the whole, corners,
mirror images); which and how many is said at the end and was fixed before any of them was measured. All
contenders see the same samples. Differences are to the best of the three peers with defaults. Intervals are
95 % paired bootstrap intervals over sources, that is over pictures with all their views: a difference is
called better or worse when its interval excludes 0. `only one agrees` counts the samples on which QuantRT and
not the peer agrees with FP32, and the other way round. A peer's top-1 may be above FP32's, by what its noise
happens to do to wrong decisions: a row that is worse by top-1 alone, and better by agreement, is such a one.
The recipe `accurate` was measured on the models of the first table. {unsearched}

QuantRT's equalization was added because of two of these rows, keyword spotting and visual wake words. Its
strength and thresholds were chosen on other samples, except that it wants 100 of them: it does so because the
face detector, calibrated on 12, became worse here.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 && python -m benchmarks.accuracy MODELS`

"""


def accuracy_page(results: dict[str, Any]) -> str:
    """Markdown: where `accurate` stands, the comparisons, a table per figure, the samples and the notes."""
    models = results["models"]
    machine = machine_line(results["environment"])
    parts = [
        HEAD.format(
            machine=machine,
            others=other_machines(models.items()),
            version=_model_optimizer(models),
            unsearched=_unsearched(models),
        )
    ]
    parts.append("## Where `accurate` stands\n\n" + standing(models))
    parts.append(
        "## `accurate` against the best of all peers\n\n" + _comparisons(models, "accurate_comparisons")
    )
    parts.append(f"## `{TO_TARGET}` against `{CONTROL}`\n\n" + _comparisons(models, "target_comparisons"))
    parts.append(
        "## Without a recipe, against the best peer with defaults\n\n" + _comparisons(models, "comparisons")
    )
    parts.append("## Signal over quantization noise of each output, dB\n\n" + _sqnr(models))
    parts.append(
        "## Decisions that agree with FP32, %\n\n"
        + _figures(models, lambda row: _percent(row.get("agreement_ratio")), None)
    )
    parts.append("## The model's own metric\n\n" + _figures(models, _score, "FP32"))
    parts.append("## Products in floats\n\n" + _figures(models, _in_floats, None))
    parts.append("## Samples, and sources of them\n\n" + _samples(models))
    parts.append("## What failed\n\n" + _failed(models))
    return "\n".join(parts)


def _unsearched(models: dict[str, Any]) -> str:
    """Which rows are from before `accurate` searched ranges."""
    names = [
        name
        for name, model in models.items()
        if "accurate_comparisons" in model and not model.get("accurate_options", {}).get("range_search")
    ]
    return f"It did not search ranges yet in the rows of {', '.join(names)}." if names else ""


def _model_optimizer(models: dict[str, Any]) -> str:
    """The version of Model-Optimizer, where a row has it."""
    found = sorted({model["model_optimizer"] for model in models.values() if model.get("model_optimizer")})
    return f" ({', '.join(found)})" if found else ""


def _failed(models: dict[str, Any]) -> str:
    """Who failed on what, and what it said."""
    rows = [
        [name, column, f"`{model['contenders'][column]['error']}`"]
        for name, model in models.items()
        for column in COLUMNS
        if "error" in model["contenders"].get(column, {})
    ]
    return table(["model", "contender", "why"], rows)


def _comparisons(models: dict[str, Any], key: str) -> str:
    rows = [
        [
            name,
            item["metric"],
            f"{item['quantrt']:.4g}",
            f"{item['peer']:.4g} ({item['best_peer']})",
            f"{item['difference']:+.3g} [{item['lo']:+.3g}, {item['hi']:+.3g}]",
            f"{item['only_quantrt']} / {item['only_peer']}" if "only_peer" in item else "",
            item["verdict"],
        ]
        for name, model in models.items()
        for item in model.get(key, ())
    ]
    columns = ["model", "figure", "QuantRT", "best peer", "difference", "only one agrees", "QuantRT is"]
    return table(columns, rows)


def _sqnr(models: dict[str, Any]) -> str:
    rows = []
    for name, model in models.items():
        contenders = model["contenders"]
        outputs: list[str] = next(
            iter(list(row["sqnr_db"]) for row in contenders.values() if "sqnr_db" in row), []
        )
        for output in outputs:
            cells = [
                f"{contenders[column]['sqnr_db'][output]:.2f}"
                if "sqnr_db" in contenders.get(column, {})
                else _missing(contenders.get(column))
                for column in COLUMNS
            ]
            rows.append([name, output, *cells])
    return table(["model", "output", *COLUMNS], rows)


def _figures(
    models: dict[str, Any], figure: Callable[[dict[str, Any]], str | None], float_column: str | None
) -> str:
    rows = []
    for name, model in models.items():
        cells = {column: figure(model["contenders"].get(column, {})) for column in COLUMNS}
        if any(cells.values()):
            texts = [cell or _missing(model["contenders"].get(column)) for column, cell in cells.items()]
            front = [] if float_column is None else [model["score_name"], _score_text(model["float_score"])]
            rows.append([name, *front, *texts])
    front = [] if float_column is None else ["metric", float_column]
    return table(["model", *front, *COLUMNS], rows)


def _samples(models: dict[str, Any]) -> str:
    rows = [
        [
            name,
            str(model["calibration_samples"]),
            f"{model['validation_samples']} of {model['validation_sources']}",
            "; ".join(f"{library}: {method}" for library, method in model["range_methods"].items()),
            _library(model),
            model["commit"],
            model["note"],
        ]
        for name, model in models.items()
    ]
    columns = ["model", "calibration", "judged on", "ranges", "quantrt int8", "commit", "data"]
    return table(columns, rows)


def _library(model: dict[str, Any]) -> str:
    """Of `quantrt int8`, and where it was the faster one if not where the row was made."""
    timed = model.get("int8_timed")
    told = "" if timed is None else f", as timed at {timed['commit']} on {timed['machine'].partition(',')[0]}"
    return f"{model['int8_library']}{told}"


def _in_floats(row: dict[str, Any]) -> str | None:
    return f"{row['in_floats']} of {row['products']}" if "products" in row else None


def _score(row: dict[str, Any]) -> str | None:
    return None if "score" not in row else _score_text(row["score"])


def _score_text(value: float) -> str:
    return f"{value:.4f}"


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{100 * ratio:.2f}"


def _missing(row: dict[str, Any] | None) -> str:
    return "" if row is None else "failed" if "error" in row else ""
