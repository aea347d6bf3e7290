# SPDX-License-Identifier: Apache-2.0
"""The page that `benchmarks.cuda_padding` writes beside its results."""

__all__ = ["cuda_padding_page"]

from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, table

INTRO = """# BERT-large without padding on an NVIDIA GPU

{machine} Commit {commit}.

{batch} samples at {length} places, {tokens:,} of {places:,} of which are tokens ({ratio:.0%}, as of SQuAD's):
lengths drawn from a gamma distribution with a standard deviation of 0.4 of its mean, seeded. Random weights;
int8 and fp16 engines with the tokenizer's mask, and the same codes with `--remove-padding`. Milliseconds of
replays on inputs that are on the device, medians of both in turns. SQNR is of the tokens' last hidden states
against torch in float32. Padded figures are not those of other pages, whose masks have less padding.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_padding docs/results/cuda-padding-h200.json`
"""

KERNELS = """
Microseconds of all kernels of a kind, each timed by itself:
"""

HEAD = ("engine", "padded ms", "unpadded ms", "is", "padded samples/s", "unpadded samples/s", "SQNR dB")
KIND_HEAD = ("engine", "kernels", "padded us", "unpadded us", "share")
KINDS = {"Gemm": "products", "Attention": "attention", "Rows": "norms and other rows"}
ENGINES = ("int8", "fp8", "fp16")


def cuda_padding_page(results: dict[str, Any]) -> str:
    """One row for each engine, then its kernels by kind."""
    found = {name: results[name] for name in ENGINES if name in results}
    intro = INTRO.format(
        machine=machine_line(results["environment"]),
        commit=results["commit"] or "unknown",
        places=results["batch"] * results["length"],
        ratio=results["token_ratio"],
        **{name: results[name] for name in ("batch", "length", "tokens")},
    )
    engines = table(HEAD, [_row(name, row) for name, row in found.items()])
    kinds = [row for name, facts in found.items() for row in _kinds(name, facts)]
    return f"{intro}\n{engines}{KERNELS}\n{table(KIND_HEAD, kinds)}"


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    rates = row["sequences_per_s"]
    return (
        name,
        number(row["ms"]["padded"]["p50"], 2),
        number(row["ms"]["unpadded"]["p50"], 2),
        f"{row['ratio']:.2f}x",
        f"{rates['padded']:,.0f}",
        f"{rates['unpadded']:,.0f}",
        f"{row['padded']['sqnr_db']:.1f}, {row['unpadded']['sqnr_db']:.1f}",
    )


def _kinds(name: str, row: dict[str, Any]) -> list[tuple[str, ...]]:
    padded, unpadded = (row[kind]["kernels_us"] for kind in ("padded", "unpadded"))
    return [
        (
            name,
            called,
            number(padded[kind], 0),
            number(unpadded[kind], 0),
            f"{unpadded[kind] / padded[kind]:.2f}",
        )
        for kind, called in KINDS.items()
        if kind in padded and kind in unpadded
    ]
