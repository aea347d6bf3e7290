# SPDX-License-Identifier: Apache-2.0
"""The page of `benchmarks.diffusion`: engines of SDXL's UNet beside torch.compile, and what builds took.

    python -m benchmarks.pages.diffusion docs/results/diffusion-h200.json    # writes the .md beside it

The JSON is FOLDER/RESULTS.json with PEER.json in it, under "whole builds" the rows of FOLDER/BUILDS.json, and
under "networks" the same of others by name.
"""

__all__ = ["diffusion_page", "levels_table", "peers_table"]

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.pages.diffusion_builds import whole_builds
from benchmarks.pages.page import number, row_notes, table

LEVEL_HEAD = (
    "level",
    "commit",
    "ms",
    "fp16 ms",
    "fp16 / it",
    "alone ms",
    "torch.compile / it",
    "SQNR dB",
    "of fp16 weights",
)

NETWORKS = {
    "wide": "SDXL's UNet for 768 x 1344 pixels",
    "sd15": "The UNet of SD 1.5 for 512 x 512 pixels",
    "flux": "One block of two streams and two of one like FLUX.1's, 4,608 tokens",
    "sam": "The image encoder of EfficientViT-SAM-L0, 512 x 512 pixels",
}
"""Titles, by the names under "networks"; all at batch 2."""

SAME = {
    "flux": "No layer is a convolution: at level 1 nothing is in codes, and the engine is that in fp16.",
    "sam": "Every product is a convolution: levels 1 to 4, 2.5 among them, place the same ones, in FP8 too.",
}
"""Of levels that are not in the table of a network, what they are."""

LEVELS = """
## Levels

By `benchmarks.diffusion_levels`, batch 2: one set of rounded weights, each engine in turns with the fp16
engine of the same process, as a build times its candidates; *alone* it ran for seconds with nothing beside
it, as torch.compile did, which is held against that. Files are beside fp16 weights. Products are
regions that multiply: convolutions and matrices, not attention, which levels 4 and auto may have in 8 bits.
"int8@3" is `--int8 --quantization-level 3`; fp8 has its convolutions in int8. Of torchao, activations get
their codes as the network runs (a scale for each row of int8, one for each tensor of FP8), layers of fewer
than 17 rows stay fp16, and so do convolutions; those networks were compiled beside others, which takes longer
than alone, and timed one at a time.

"""

PEERS = {
    "peer": "fp16",
    "torchao int8": "linear layers in int8 by torchao",
    "torchao int8 tuned": "linear layers in int8 by torchao, launches of all kernels searched",
    "torchao fp8": "linear layers in FP8 by torchao",
    "torchao fp8 tuned": "linear layers in FP8 by torchao, launches of all kernels searched",
}
"""What is told of each row of a peer."""

INTRODUCTION = """# SDXL's UNet on an NVIDIA GPU

{gpu}; {packages}.

The full configuration, 2.57 billion seeded random weights, batch 2, latents {height} x {width}. Engines are
those of `quantrt.build(..., device="cuda")`; ranges are of one sample. *ms* is the median of the build's own
race, by CUDA events, in which the engine took turns with the fp16 and FP32 engines of the same build: ratios
to fp16 are of one race. torch.compile (fp16, channels last, a CUDA graph) was timed alone, on another GPU of
the same kind, in {peer_ms} ms; it compiled for {compile_s} s. SQNR is of the outputs at ten steps against
torch in FP32. Files are beside fp16 weights of {half_mb} MB.

Reproduce on a machine with a GPU, step by step: `python -m benchmarks.diffusion -h`
"""


def diffusion_page(results: dict[str, Any]) -> str:
    """Markdown of results of one size of latents."""
    peer = results["peer"]
    peer_ms = _alone_ms(peer)
    packages = ", ".join(f"{name} {version}" for name, version in results["environment"]["packages"].items())
    height, width = peer["latents"]
    half_bytes = results["weights"]["bytes"] / 2
    builds = {name.removeprefix("build "): row for name, row in results.items() if name.startswith("build ")}
    head = INTRODUCTION.format(
        gpu=results["environment"]["gpu"],
        packages=packages,
        height=height,
        width=width,
        peer_ms=number(peer_ms, 1),
        compile_s=number(peer["compile_s"], 0),
        half_mb=number(half_bytes / 1e6, 0),
    )
    times = [_times(name, row, peer_ms, results) for name, row in builds.items()]
    costs = [_costs(name, row, half_bytes, results) for name, row in builds.items()]
    return (
        head
        + "\n## Time\n\n"
        + table(("engine", "commit", "ships", "ms", "fp16 / it", "torch.compile / it", "SQNR dB"), times)
        + "\n## Builds\n\n"
        + table(
            (
                "engine",
                "build s",
                "of it compiling",
                "file MB",
                "of fp16 weights",
                "load s",
                "host GB",
                "GPU GB",
            ),
            costs,
        )
        + row_notes(builds)
        + whole_builds(results)
        + (LEVELS + levels_table(results, peer_ms) + peers_table(results) if _levels(results) else "")
        + "".join(_network(name, found) for name, found in results.get("networks", {}).items())
    )


def _network(name: str, found: dict[str, Any]) -> str:
    """A section of another network; what torch.compile took is told where it was timed."""
    peer_ms = _alone_ms(found["peer"]) if "peer" in found else None
    same = f"\n{SAME[name]}\n" if name in SAME else ""
    return f"\n### {NETWORKS[name]}\n\n{levels_table(found, peer_ms)}{same}{peers_table(found)}"


def peers_table(results: dict[str, Any]) -> str:
    """A line for every peer, beside the fastest level, and what failed; empty where none was timed."""
    found = {told: results[key] for key, told in PEERS.items() if key in results}
    rows = {told: row for told, row in found.items() if "ms" in row}
    failed = [f"{told}: {row['error']} ({row['commit']})." for told, row in found.items() if "error" in row]
    alone = {name: row["alone_ms"] for name, row in _levels(results).items() if "alone_ms" in row}
    if not rows or not alone:
        return ""
    best = min(alone, key=lambda name: alone[name])
    lines = [
        (
            told,
            row["commit"] or "unknown",
            number(_alone_ms(row), 2),
            f"{_alone_ms(row) / alone[best]:.2f}x",
            number(row["compile_s"], 0),
            "{} of {}".format(*row["layers"]) if "layers" in row else "",
        )
        for told, row in rows.items()
    ]
    head = ("torch.compile", "commit", "alone ms", f"it / {best}", "compiled in s", "layers in codes")
    return "\n" + table(head, lines) + "".join(f"\nWith {text}\n" for text in failed)


def _alone_ms(peer: dict[str, Any]) -> float:
    """Of a peer."""
    return float(peer["ms"]["torch.compile fp16"]["p50"])


def _levels(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows of levels by their names."""
    return {name.removeprefix("level "): row for name, row in results.items() if name.startswith("level ")}


def levels_table(results: dict[str, Any], peer_ms: float | None = None) -> str:
    """A line for every level.

    Args:
        peer_ms: of torch.compile in fp16; None where it was not timed.
    """
    half_bytes = results["weights"]["bytes"] / 2
    kinds = ("int8", "fp8", "fp16")
    lines = [
        (
            name,
            row["commit"] or "unknown",
            number(row["ms"], 2),
            number(row["fp16_ms"], 2),
            f"{row['fp16_ms'] / row['ms']:.2f}x",
            number(row.get("alone_ms"), 2),
            f"{peer_ms / row['alone_ms']:.2f}x" if peer_ms and "alone_ms" in row else "",
            number(row["sqnr_db"], 1),
            number(row["bytes"] / half_bytes, 3),
            *(str(row["regions"].get(kind, 0)) for kind in kinds),
        )
        for name, row in _levels(results).items()
    ]
    heads = (*LEVEL_HEAD, *(f"{kind} products" for kind in kinds))
    return table(heads, lines)


def _times(name: str, row: dict[str, Any], peer_ms: float, results: dict[str, Any]) -> tuple[str, ...]:
    """A line of the first table."""
    medians = {found["name"]: found["median_ms"] for found in row["candidates"]}
    shipped = next(found for found in row["candidates"] if found["status"] == "shipped")
    ms = shipped["median_ms"]
    opened = results.get(f"engine {name}", {})
    return (
        name,
        row["commit"] or "unknown",
        shipped["name"],
        number(ms, 2),
        f"{medians['cuda fp16'] / ms:.2f}x",
        f"{peer_ms / ms:.2f}x",
        number(opened.get("sqnr_db"), 1),
    )


def _costs(name: str, row: dict[str, Any], half_bytes: float, results: dict[str, Any]) -> tuple[str, ...]:
    """A line of the second table."""
    peak = row["peak_memory"]
    return (
        name,
        number(row["build_s"], 0),
        number(row["stages_s"].get("compiling"), 0),
        number(row["engine_bytes"] / 1e6, 0),
        number(row["engine_bytes"] / half_bytes, 3),
        number(results.get(f"engine {name}", {}).get("load_s"), 1),
        number(peak["host_bytes"] / 1e9, 1),
        number(peak["device_bytes"] / 1e9, 1),
    )


def main() -> None:
    path = Path(sys.argv[1])
    path.with_suffix(".md").write_text(diffusion_page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
