# SPDX-License-Identifier: Apache-2.0
"""The page that `benchmarks.per_token` writes beside its results."""

__all__ = ["per_token_page"]

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.page import number, table
from benchmarks.record import machine_line

INTRO = """# Scales per token on trained transformers

{machine} Commit {commit}.

int8 by the placement of ONNX Runtime, judged there on data that no calibration saw:
{samples}.
Signal over quantization noise is of the first output against FP32. `static` are scales by calibration on 128
samples, by the recipe `default`; `per token` has one for each row that a product reads (`--activations
per-token`), found as the model runs. Without data nothing is known of ranges: `random data` are inputs of the
right shapes without meaning, `no data` leaves in floats what is no product with a weight. SmoothQuant is
`--smoothing multiplied`. The model with outlier channels is the vision transformer with 4 channels of every
attention's input planted 32 times as large, in all tokens: what scales per token win back there is less than
what SmoothQuant does.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 &&
python -m benchmarks.per_token MODELS docs/results/per-token-cpu.json`
"""


def per_token_page(results: Mapping[str, Any]) -> str:
    """Two tables: noise, and the models' own metrics."""
    models = results["models"]
    columns = list(dict.fromkeys(name for row in models.values() for name in row["variants"]))
    intro = INTRO.format(
        machine=machine_line(results["environment"]),
        commit=", ".join(sorted({x["commit"] for row in models.values() for x in row["variants"].values()})),
        samples="; ".join(f"{row['samples']} samples of {name}" for name, row in models.items()),
    )
    noise = [
        [name, *(number(row["variants"].get(x, {}).get("sqnr_db"), 1) for x in columns)]
        for name, row in models.items()
    ]
    scores = [
        [
            f"{name}: {row['score_name']}",
            number(row["float_score"], 4),
            *(number(row["variants"].get(x, {}).get("score"), 4) for x in columns),
        ]
        for name, row in models.items()
        if "score_name" in row
    ]
    text = f"{intro}\n## Signal over quantization noise, dB\n\n{table(['model', *columns], noise)}"
    return text + f"\n## The models' own metrics\n\n{table(['model', 'FP32', *columns], scores)}"
