# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_engines` writes beside its results."""

__all__ = ["BF16", "cuda_page", "machine_line"]

from typing import Any

from benchmarks.cuda.timing import ROUNDS
from benchmarks.pages.page import number, row_notes, table

PEER = "torch.compile fp16"
PRECISIONS = ("fp16", "int8", "fp8")
BF16 = "bf16"

INTRO = """# Engines on an NVIDIA GPU

{machine}

Milliseconds of one run, inputs and outputs on the device: medians of {rounds} rounds in which all
contenders took turns, by CUDA events, in an order drawn for each round; a turn is 0.4 s long and its
second half counts, in which a GPU at its limit of power has the clock that this contender leaves it (up
to 001a52b: 30 rounds of 20 runs, in one order for all). The engines are those of `quantrt.build(...,
device="cuda")` with `{{"fp16"}}` and `{{"int8", "fp16"}}`, of some with `{{"fp8", "fp16"}}` too, without
an accuracy bound, so that the fastest is shipped: "int8 ships" says what that was. The peer is
`torch.compile` in fp16, channels last where there are images, as a CUDA graph. Weights are seeded random
ones; SQNR is of the outputs against ONNX Runtime in FP32. Builds are cold, then with the timing cache of
the first; builds in 8 bits make the FP32 and fp16 engines too, to compare with. Rows are of several
commits, on hosts that need not be the same; an empty field was not measured.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_engines docs/results/cuda-{gpu}.json`
"""


def cuda_page(results: dict[str, Any]) -> str:
    """Tables of latency, size, accuracy and build times."""
    environment = results["environment"]
    machine = machine_line(environment)
    rows = results.get("rows", {})
    gpu = environment["gpu"].removeprefix("NVIDIA ").split()[0].lower()
    parts = [INTRO.format(machine=machine, rounds=ROUNDS, gpu=gpu), "## Latency\n"]
    parts.append(
        table(
            (
                "model",
                "commit",
                "fp16 ms",
                "int8 ms",
                "int8 ships",
                "fp8 ms",
                "peer ms",
                "peer / fp16",
                "peer / int8",
                "peer / fp8",
                "fp16 / int8",
            ),
            [_latency(name, row) for name, row in rows.items()],
        )
    )
    if BF16 in results:
        parts.append("## In bf16\n\nBy `--only fp16 --only bf16 --no-peer`, in turns with fp16.\n")
        head = ("model", "commit", "fp16 ms", "bf16 ms", "ships", "fp16 SQNR dB", "SQNR dB", "load s")
        parts.append(table(head, [_in_bf16(name, row) for name, row in results[BF16].items()]))
    parts.append("## Files, accuracy, builds\n")
    facts = (
        "model",
        "engine",
        "MB",
        "of the ONNX file",
        "SQNR dB",
        "build s",
        "rebuild s",
        "load s",
        "host us",
    )
    lines = [line for name, row in rows.items() for line in _facts(name, row)]
    parts.append(table(facts, lines))
    return "\n".join(parts) + row_notes(rows)


def _latency(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    ms = {key: value["p50"] for key, value in row["ms"].items()}
    fp16, int8, fp8, peer = (ms.get(key) for key in (*PRECISIONS, PEER))
    codes = row.get("int8", {})
    return (
        name,
        row.get("commit") or "unknown",
        number(fp16, 3),
        number(int8, 3),
        str(codes.get("ships", codes.get("error", "?"))),
        number(fp8, 3),
        number(peer, 3),
        f"{peer / fp16:.2f}x" if fp16 and peer else "",
        f"{peer / int8:.2f}x" if int8 and peer else "",
        f"{peer / fp8:.2f}x" if fp8 and peer else "",
        f"{fp16 / int8:.2f}x" if fp16 and int8 else "",
    )


def _in_bf16(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    facts, ms = row[BF16], row["ms"]
    return (
        name,
        row["commit"],
        number(ms["fp16"]["p50"], 3),
        number(ms[BF16]["p50"], 3),
        facts["ships"],
        number(row["fp16"]["sqnr_db"], 1),
        number(facts["sqnr_db"], 1),
        number(facts["load_s"], 2),
    )


def _facts(name: str, row: dict[str, Any]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for precision in PRECISIONS:
        facts = row.get(precision, {"error": "not built"})
        if "error" in facts:
            continue
        lines.append(
            (
                name,
                precision,
                number(facts["engine_bytes"] / 1e6, 1),
                f"{facts['engine_bytes'] / row['onnx_bytes']:.3f}",
                number(facts["sqnr_db"], 1),
                number(facts["build_s"], 1),
                number(facts["rebuild_s"], 1),
                number(facts["load_s"], 2),
                number(facts["host_us"], 0),
            )
        )
    return lines


def machine_line(environment: dict[str, Any]) -> str:
    """One sentence: the GPU and the versions."""
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    return f"{environment['gpu']}; {packages}."
