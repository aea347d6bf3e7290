# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_models` writes beside its results."""

__all__ = ["cuda_models_page"]

from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, row_notes, table

INTRO = """# Trained models on an NVIDIA GPU

{machine}

fp16 and int8 as `quantrt.build(..., device="cuda")` opens them; of int8, products that are slower than in
fp16 stay fp16. "ships" is the one that a build ships: int8 where its own rounds find it surely faster, else
fp16; rows without are older than the column. Batch 8 where the model has a batch. Milliseconds of one run,
inputs and outputs on the device, medians of rounds in turns by CUDA events.
"products" are those that multiply int8 codes, of all regions of the engine; the codes of each were held
against the reference before it was timed. SQNR is of the worst output, agreement the share of decisions that
are FP32's in ONNX Runtime. Q/DQ models are held against ONNX Runtime without its rewrites, on random codes of
their inputs' grids: where a product is faster in fp16, its input is not rounded there, and a sum next to the
middle between two codes may fall to either.

Reproduce on a machine with a GPU and the data:
`python -m benchmarks.cuda_models docs/results/cuda-models-h200.json`
"""

HEAD = ("model", "commit", "engine", "ships", "products / regions", "ms", "SQNR dB", "agreement")


def cuda_models_page(results: dict[str, Any]) -> str:
    """Tables of the float models and of those that were quantized before."""
    parts = [INTRO.format(machine=machine_line(results["environment"]))]
    parts.append("## Float models, on their own data\n")
    lines = [line for name, row in results["float"].items() for line in _lines(name, row)]
    parts.append(table((*HEAD, "score", "FP32's score"), lines) + row_notes(results["float"]))
    lines = [line[:-2] for name, row in results["quantized"].items() for line in _lines(name, row)]
    if lines:
        parts += ["## Q/DQ models, on random codes\n", table(HEAD, lines) + row_notes(results["quantized"])]
    return "\n".join(parts)


def _lines(name: str, row: dict[str, Any]) -> list[tuple[str, ...]]:
    return [_line(name, row, precision) for precision in row["engines"]]


def _line(name: str, row: dict[str, Any], precision: str) -> tuple[str, ...]:
    facts = row["engines"][precision]
    score = f"{row['score_name']} {facts['score']:.4f}" if "score" in facts else ""
    return (
        name,
        row["commit"] or "unknown",
        precision,
        "yes" if row.get("ships") == precision else "",
        f"{facts['int8_products']} / {facts['regions']}",
        number(row["ms"][precision]["p50"], 3),
        number(min(facts["sqnr_db"].values()), 1),
        number(facts.get("agreement_ratio"), 4),
        score,
        number(row.get("float_score"), 4),
    )
