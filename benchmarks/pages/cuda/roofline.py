# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_roofline` writes beside its results."""

__all__ = ["cuda_roofline_page"]

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, table

INTRO = """# Kernels against the roofline of an NVIDIA GPU

{machine}

What each kernel of a layer takes, and the least that its work allows: the longest of its products, its bytes (inputs, weights and
outputs, each once) and, of attention, the exponentials of its softmax. Kernels are timed as builds time them: alone, as CUDA graphs
with a cold L2 cache, which has a launch of about 2 us in it. Weights are random. *Lost* is the time above the roofline.

Reproduce: `python -m benchmarks.cuda_roofline docs/results/cuda-roofline-h200.json` on a machine with a GPU, or with the timing cache
of a build by `--timings`.

## Peaks

{source} Exponentials are 16 per clock and multiprocessor by CUDA's programming guide, at 1.98 GHz.

"""  # noqa: E501

EXPLAINED = {
    "Attention": "its products would take {products:.0f} us and its exponentials {exponentials:.0f}, which a "
    "tile needs one after the other: together {both:.0%} of its time; in tiles of 64 rows and keys they are "
    "{padded:.2f} times as many",
    "Gemm": "a tile has {steps:.0f} steps, where one of the peak has {most:.0f}, so that its beginning, its "
    "end and what is computed behind it are more of it",
    "Rows": "every row is read and written once, at {rate:.2f} TB/s, a launch included",
}
"""Why a kernel of a kind is above the roofline, as far as its own figures tell."""

STEP_BYTES = 128
"""Of every row and column of a tile that are fetched and multiplied at a time."""

PEAK_INPUTS = 8192
TILE = 64

PRODUCT_BYTES = {"fp16": 2, "int8": 1, "fp8": 1}
"""Of one operand."""


def cuda_roofline_page(results: Mapping[str, Any]) -> str:
    """Peaks, then a table for every network and precision."""
    peaks = results["peaks"]
    intro = INTRO.format(machine=machine_line(results["environment"]), source=peaks["source"])
    parts = [intro, _peak_table(peaks)]
    for name, network in results["networks"].items():
        for precision, engine in network["engines"].items():
            parts += ["\n", f"## {name} in {precision}\n\n"]
            parts += _kernels(engine["kernels"], peaks, results["layers"])
        note = f" {network['note']}" if "note" in network else ""
        parts.append(f"\nMeasured at {network['commit'] or 'unknown'}.{note}\n")
    return "".join(parts)


def _peak_table(peaks: Mapping[str, Any]) -> str:
    rows = [(name, f"{rate / 1e6:.0f} T/s") for name, rate in peaks["operations_per_us"].items()]
    rows.append(("copy", f"{peaks['bytes_per_us'] / 1e6:.2f} TB/s"))
    rows.append(("exponentials", f"{peaks['exponentials_per_us'] / 1e6:.2f} T/s"))
    return table(("what", "rate"), rows)


def _kernels(kernels: Sequence[Mapping[str, Any]], peaks: Mapping[str, Any], layers: int) -> Iterator[str]:
    head = (
        "kernel",
        "stores",
        "us",
        "TOP/s",
        "TB/s",
        "products us",
        "bytes us",
        "exp us",
        "reached",
        "lost us",
    )
    rows = [(row, _times(row, peaks), math.ceil((row["count"] or 1) / layers)) for row in kernels]
    lines = [_line(*found) for found in rows]
    if all(row["count"] for row in kernels):
        time_us = sum(each * row["us"] for row, _, each in rows)
        lost_us = sum(_lost_us(*found) for found in rows)
        share = f"{1 - lost_us / time_us:.0%}"
        lines.append(("a layer", "", number(time_us, 1), *[""] * 5, share, number(lost_us, 1)))
    yield table(head, lines)
    row, times, _ = max(rows, key=lambda found: _lost_us(*found))
    yield f"\nThe most is lost in {row['label']}: {_why(row, times)}.\n"


def _lost_us(row: Mapping[str, Any], times: Mapping[str, float], each: int) -> float:
    """What a layer loses by a kernel that it has so often."""
    return each * (float(row["us"]) - max(times.values()))


def _line(row: Mapping[str, Any], times: Mapping[str, float], each: int) -> tuple[str, ...]:
    label = row["label"] if each == 1 else f"{row['label']}, {each} of them"
    return (
        label,
        ", ".join(row["stores"]),
        number(row["us"], 1),
        number(row["operations"] / row["us"] / 1e6, 0) if row["operations"] else "",
        number(row["bytes"] / row["us"] / 1e6, 2),
        *(number(times[name], 1) if times[name] else "" for name in ("products", "bytes", "exponentials")),
        f"{max(times.values()) / row['us']:.0%}",
        number(_lost_us(row, times, each), 1),
    )


def _times(row: Mapping[str, Any], peaks: Mapping[str, Any]) -> dict[str, float]:
    """The least microseconds of what a kernel does, at the peaks."""
    kind = row["computes_in"]
    rate = max(rate for name, rate in peaks["operations_per_us"].items() if name.startswith(kind))
    return {
        "products": row["operations"] / rate,
        "bytes": row["bytes"] / peaks["bytes_per_us"],
        "exponentials": row["exponentials"] / peaks["exponentials_per_us"],
    }


def _padded(row: Mapping[str, Any]) -> float:
    """Queries times keys in whole tiles over those that there are; 1 for what is no attention."""
    if row["kind"] != "Attention":
        return 1.0
    length = int(row["label"].split("x")[2])
    return float((math.ceil(length / TILE) * TILE / length) ** 2)


def _why(row: Mapping[str, Any], times: Mapping[str, float]) -> str:
    size = PRODUCT_BYTES[row["computes_in"]]
    return EXPLAINED.get(row["kind"], "not explained").format(
        products=times["products"],
        exponentials=times["exponentials"],
        both=(times["products"] + times["exponentials"]) / row["us"],
        steps=row["inputs"] * size / STEP_BYTES,
        most=PEAK_INPUTS * size / STEP_BYTES,
        padded=_padded(row),
        rate=row["bytes"] / row["us"] / 1e6,
    )
