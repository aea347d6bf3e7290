# SPDX-License-Identifier: Apache-2.0
"""The page that `benchmarks.cuda_cudnn` writes beside its results."""

__all__ = ["cuda_cudnn_page"]

from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, row_notes, table

INTRO = """# cuDNN's convolution graphs on an NVIDIA GPU

{machine}

Convolutions with their whole epilogue, int8 codes to int8 codes unless said otherwise: microseconds with a
cold L2 cache, and rates in 1e12 operations per second, of the fastest tactic that is right: our kernels;
cuDNN's convolution in fp16 through torch, with our kernels before and behind it ("dequantized"); one graph of
cuDNN. Int8 codes of each were held against the reference, code for code, before it was timed.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_cudnn docs/results/cuda-cudnn-h200.json`
"""

LEGEND = """
Names are the layer's kernel, input channels and input height ("s2": of stride 2); "res" has a residual in
int8, "f16out" stores float16, "f16" reads and stores it.
"""

HEAD = ("convolution", "commit", "ours us", "T/s", "dequantized us", "cuDNN graph us", "T/s", "ours / graph")


def cuda_cudnn_page(results: dict[str, Any]) -> str:
    """One row per convolution."""
    intro = INTRO.format(machine=machine_line(results["environment"]))
    rows = [_row(name, row) for name, row in results["rows"].items()]
    return intro + "\n" + table(HEAD, rows) + LEGEND + row_notes(results["rows"])


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    graphs = {tactic: us for tactic, us in row["us"].items() if "graph" in tactic}
    ours = {tactic: us for tactic, us in row["us"].items() if tactic.startswith("triton:")}
    others = [us for tactic, us in row["us"].items() if tactic not in graphs and tactic.startswith("cudnn:")]
    our_us, graph_us = min(ours.values(), default=None), min(graphs.values(), default=None)
    return (
        name,
        row["commit"] or "unknown",
        number(our_us, 1),
        _rate(row, our_us),
        number(min(others, default=None), 1),
        number(graph_us, 1),
        _rate(row, graph_us),
        "" if our_us is None or graph_us is None else f"{our_us / graph_us:.2f}x",
    )


def _rate(row: dict[str, Any], us: float | None) -> str:
    return "" if us is None else f"{row['operations'] / us / 1e6:.0f}"
