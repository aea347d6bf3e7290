# SPDX-License-Identifier: Apache-2.0
"""The page that `benchmarks.cuda_per_token` writes beside its results."""

__all__ = ["cuda_per_token_page"]

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, table

INTRO = """# Scales per token on an NVIDIA GPU

{machine} Commit {commit}.

Six layers of BERT-large with random weights: an fp16 engine, int8 with static scales of activations, and int8
with a scale for each token (`--activations per-token`), found as the model runs. Milliseconds of replays on
inputs that are on the device, medians of all three in turns. SQNR is of the last hidden states against torch
in float32; random weights have no outliers, which static scales lose most on:
[per-token-cpu.md](per-token-cpu.md) has trained models. `x of fp16` is fp16's time over that of scales per
token.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_per_token docs/results/cuda-per-token-h200.json`
"""

PRODUCTS = """
Microseconds of kernels timed by themselves, of products by type and shape of their weights. A product that is
not there in int8 was slower than in fp16, making its codes included. `rows` are norms and all else that makes
codes: with static scales, products store the codes of the next one, and scales of rows want whole rows first.
"""

HEAD = ("tokens", "fp16 ms", "static ms", "per token ms", "x of fp16", "SQNR dB: fp16", "static", "per token")
ENGINES = ("fp16", "static", "per token")


def cuda_per_token_page(results: Mapping[str, Any]) -> str:
    """One row for each number of tokens, then the kernels."""
    rows = results["rows"]
    commits = ", ".join(sorted({row["commit"] or "unknown" for row in rows.values()}))
    intro = INTRO.format(machine=machine_line(results["environment"]), commit=commits)
    head = ("tokens", "kernel", *(f"{name} us" for name in ENGINES))
    kernels = [line for row in rows.values() for line in _kernels(row)]
    return f"{intro}\n{table(HEAD, [_row(row) for row in rows.values()])}{PRODUCTS}\n{table(head, kernels)}"


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    ms = {name: row["ms"][name]["p50"] for name in ENGINES}
    return (
        f"{row['batch']} x {row['length']}",
        *(number(ms[name], 3) for name in ENGINES),
        f"{ms['fp16'] / ms['per token']:.2f}x",
        *(number(row["engines"][name]["sqnr_db"], 1) for name in ENGINES),
    )


def _kernels(row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    engines = row["engines"]
    tokens = f"{row['batch']} x {row['length']}"
    names = dict.fromkeys(key for name in ENGINES for key in engines[name]["products"])
    found = [
        (
            tokens,
            key.replace("float32", "fp16"),
            *(number(engines[name]["products"].get(key, {}).get("us"), 1) for name in ENGINES),
        )
        for key in names
    ]
    totals = [
        (tokens, f"all {label}", *(number(engines[name]["kinds_us"].get(kind), 1) for name in ENGINES))
        for kind, label in (("Gemm", "products"), ("Rows", "rows"), ("Attention", "attention"))
    ]
    return [*found, *totals]
