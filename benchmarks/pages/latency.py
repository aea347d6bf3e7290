# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.latency`."""

__all__ = ["latency_page"]

from collections.abc import Iterator
from typing import Any

from benchmarks.pages.page import table
from benchmarks.record import machine_line, other_machines

HEAD = """# Latency of engines on a CPU

{machine}
{others}
Medians of single requests on all cores, engine and peers in one process, in turns, on the same input. The
engine is built with `precisions={{"int8"}}` (int8) or `{{"int8", "bf16"}}` (int8+bf16) for the batch. The
ratio is the peer's time over the engine's, paired within rounds, with its 99 % interval; above 1 the engine
is faster. Peers: ONNX Runtime FP32 and `quantize_static` (defaults; u8s8 per channel), OpenVINO FP32, and
`nncf.quantize` (with `model_type=TRANSFORMER` too on attention models) with OpenVINO's own float type
(`default`, bf16 where the CPU has it) and with f32; OpenVINO's both with dynamic shapes and reshaped to the
input's (`static`). Neither the engines' accuracy nor the peers' is bounded here: the vision models have
seeded random weights, and the accuracy page tells what int8 costs trained ones.

Reproduce: `python -m benchmarks.models MODELS && python -m benchmarks.latency MODELS`

"""

Line = list[str]


def latency_page(results: dict[str, Any]) -> str:
    """Markdown: engines against the fastest peer, then every peer."""
    models = results["models"]
    rows = [(f"{name}, batch {batch}", row) for name, of in models.items() for batch, row in of.items()]
    return "\n".join(
        [
            HEAD.format(machine=machine_line(results["environment"]), others=other_machines(rows)),
            "## Engines against the fastest peer\n\n" + table(ENGINE_COLUMNS, list(_engines(models))),
            "## All peers, ms\n\n" + table(PEER_COLUMNS, list(_peers(models))),
        ]
    )


ENGINE_COLUMNS = [
    "model",
    "batch",
    "engine",
    "ships",
    "ms",
    "fastest peer",
    "ms",
    "ratio",
    "interval",
    "ratio to FP32",
    "SQNR dB: engine / peer",
    "commit",
]
PEER_COLUMNS = ["model", "batch", "peer", "heat", "final", "p20", "p80"]


def _engines(models: dict[str, Any]) -> Iterator[Line]:
    for name, batches in models.items():
        for batch, row in batches.items():
            for kind, engine in row["engines"].items():
                peer, ratio = engine["fastest_peer"], engine["ratio"]
                yield [
                    name,
                    batch,
                    kind,
                    engine["shipped"]["shipped"],
                    f"{engine['latency']['median_ms']:.2f}",
                    peer,
                    f"{row['peers'][peer]['final']['median_ms']:.2f}",
                    f"{ratio['ratio']:.3f}",
                    f"{ratio['lo']:.3f} to {ratio['hi']:.3f}",
                    f"{engine['ratio_to_fp32']['ratio']:.2f}",
                    f"{engine['sqnr_db']:.1f} / {row['peer_sqnr_db'][peer]:.1f}",
                    row["commit"],
                ]


def _peers(models: dict[str, Any]) -> Iterator[Line]:
    for name, batches in models.items():
        for batch, row in batches.items():
            for peer, figures in row["peers"].items():
                final = figures["final"] or {}
                times = [final.get(key) for key in ("median_ms", "p20_ms", "p80_ms")]
                cells = ["" if value is None else f"{value:.2f}" for value in times]
                yield [name, batch, peer, f"{figures['heat_ms']:.2f}", *cells]
