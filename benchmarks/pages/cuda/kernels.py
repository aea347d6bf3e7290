# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_kernels` writes beside its results."""

__all__ = ["cuda_kernels_page"]

from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, row_notes, table

INTRO = """# Single kernels on an NVIDIA GPU

{machine}

Microseconds of the fastest tactic of each source, as builds of level 3 time them: as CUDA graphs with a cold
L2 cache, after each was held against the reference. "ours, by tiles" is the product kernel for any GPU, "by
turns" the one of compute capability 9.0 in which one tile is multiplied while another is finished, "of 4
bits" the one that reads weights as codes of 4 bits; the others multiply halves there. The library's time is
of its product, or norm, and a kernel of ours behind it. The floor is the longer of operations over the data
sheet's peak and bytes over the bandwidth of a copy.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_kernels docs/results/cuda-kernels-h200.json`
"""

HEAD = (
    "kernel",
    "commit",
    "ours, by tiles us",
    "by turns us",
    "of 4 bits us",
    "library us",
    "floor us",
    "library / best of ours",
)


def cuda_kernels_page(results: dict[str, Any]) -> str:
    """One row per workload."""
    rows = [_row(name, row) for name, row in results["rows"].items()]
    intro = INTRO.format(machine=machine_line(results["environment"]))
    return intro + "\n" + table(HEAD, rows) + row_notes(results["rows"])


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    ours = {tactic: us for tactic, us in row["us"].items() if tactic.startswith("triton:")}
    turns = min((us for tactic, us in ours.items() if "hopper" in tactic), default=None)
    grouped = min((us for tactic, us in ours.items() if "gemm w4" in tactic), default=None)
    others = [us for tactic, us in ours.items() if "hopper" not in tactic and "gemm w4" not in tactic]
    tiles = min(others, default=None)
    library = min((us for tactic, us in row["us"].items() if tactic not in ours), default=None)
    ratio = None if library is None or not ours else library / min(ours.values())
    return (
        name,
        row["commit"] or "unknown",
        number(tiles, 1),
        number(turns, 1),
        number(grouped, 1),
        number(library, 1),
        number(row["floor_us"], 1),
        "" if ratio is None else f"{ratio:.2f}x",
    )
