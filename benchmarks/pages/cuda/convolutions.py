# SPDX-License-Identifier: Apache-2.0
"""The page that `benchmarks.cuda_convolutions` writes beside its results."""

__all__ = ["cuda_convolutions_page"]

import math
from collections.abc import Iterable
from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, table

INTRO = """# Int8 convolutions and cuDNN's in fp16 on an NVIDIA GPU

{machine}

Every convolution of a network once, in microseconds with a cold L2 cache, each as a CUDA graph: the tactic
that a build takes for it in int8, from codes to codes with its whole epilogue (SDXL's store float16, for
normalisations follow); cuDNN's fp16 convolution through torch, channels last and benchmarked, alone, and with
one compiled kernel for bias, residual and activation behind it, to which the ratio is. Int8 outputs of each
tactic were held against the reference before it was timed. T/s are 1e12 operations per second of the int8
convolution.

Reproduce on a machine with a GPU:
`python -m benchmarks.cuda_convolutions docs/results/cuda-convolutions-h200.json`

## All convolutions of a network

The geometric mean is of the ratios of its different convolutions; the sums have each as often as the network.

"""

LEGEND = """
Names are kernel, stride, channels in and out, input height, activation, and "res" where a tensor is added.
"""

SUMMARY_HEAD = ("network", "convolutions", "geometric mean", "least", "int8 us", "fp16 us", "of the sums")
HEAD = ("convolution", "times", "int8 us", "T/s", "tactic", "cuDNN us", "with epilogue us", "ratio")


def cuda_convolutions_page(results: dict[str, Any]) -> str:
    """A line for every network, then a table for each."""
    networks = results["networks"]
    parts = [INTRO.format(machine=machine_line(results["environment"]))]
    parts.append(table(SUMMARY_HEAD, [_summary(name, rows.values()) for name, rows in networks.items()]))
    parts.append(LEGEND)
    for name, rows in networks.items():
        commits = ", ".join(sorted({row["commit"] or "unknown" for row in rows.values()}))
        lines = [_line(convolution, row) for convolution, row in rows.items()]
        parts.append(f"\n## {name}\n\nAt {commits}.\n\n" + table(HEAD, lines))
    return "".join(parts)


def _summary(name: str, rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    rows = list(rows)
    ratios = [_ratio(row) for row in rows]
    int8_us, fp16_us = (sum(row["times"] * row[key] for row in rows) for key in ("int8_us", "fp16_us"))
    return (
        name,
        str(len(rows)),
        f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}x",
        f"{min(ratios):.2f}x",
        number(int8_us, 0),
        number(fp16_us, 0),
        f"{fp16_us / int8_us:.2f}x",
    )


def _line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(row["times"]),
        number(row["int8_us"], 1),
        number(row["operations"] / row["int8_us"] / 1e6, 0),
        row["tactic"],
        number(row["conv_us"], 1),
        number(row["fp16_us"], 1),
        f"{_ratio(row):.2f}x",
    )


def _ratio(row: dict[str, Any]) -> float:
    ratio: float = row["fp16_us"] / row["int8_us"]
    return ratio
