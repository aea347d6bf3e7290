# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.zoo` writes beside its results."""

__all__ = ["zoo_page"]

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, row_notes, table

INTRO = """# A zoo of models on {device}

{machine}

{count} graphs of {models} architectures, by torch's two exporters (`.ts` is TorchScript, the others dynamo),
with seeded random weights and at modest sizes: what is tried is whether a build ends in a right engine, not
the accuracy of trained models or speed. {built} of {count} build. Each is `quantrt.build` with {precisions},
range method minmax, four samples and no accuracy bound{level}.
SQNR is of the worst output in floats of each candidate on other samples against ONNX Runtime in FP32; "same"
where every value is. A deep network of random weights makes more of a rounding than a trained one: what FP32
loses tells how much more. What exchanges rows of like scores (TopK in RT-DETR) counts them as wrong.
Rows were built {beside}: milliseconds say which candidate is faster, and no more.

Reproduce: `python -m benchmarks.zoo_models GRAPHS`, then
`python -m benchmarks.zoo GRAPHS {out} --device {flag}`
"""

GPU_HEAD = (
    *("model", "commit", "nodes", "ships", "FP32 ms", "fp16 ms", "int8 ms", "FP32 dB", "fp16 dB", "int8 dB"),
    *("products in int8", "in torch", "build s"),
)
CPU_HEAD = ("model", "commit", "nodes", "ships", "FP32 ms", "int8 ms", "int8 dB", "build s")


UNTRIED = "candidates that level"
"""Why a kernel was not tried, of which another of its family may have been."""


def zoo_page(results: Mapping[str, Any], device: str) -> str:
    """A table for every family, then what did not build, and what runs in torch and why."""
    rows = results["rows"]
    done = {name: row for name, row in rows.items() if "ships" in row}
    is_gpu = device == "cuda"
    parts = [_intro(results, rows, done, is_gpu=is_gpu)]
    for family in dict.fromkeys(row.get("family", "?") for row in rows.values()):
        mine = {name: row for name, row in sorted(done.items()) if row["family"] == family}
        lines = [_gpu_line(name, row) if is_gpu else _cpu_line(name, row) for name, row in mine.items()]
        parts += [f"## {family.capitalize()}\n", table(GPU_HEAD if is_gpu else CPU_HEAD, lines)]
    failed = [
        (name, " ".join(str(row.get("error") or row.get("unfinished", "?")).split()))
        for name, row in sorted(rows.items())
        if name not in done
    ]
    if failed:
        parts += ["## Not built\n", table(("model", "why"), failed)]
    if is_gpu:
        parts += [
            "## What runs in torch, and why\n",
            table(("operator or kernel", "models"), list(_reasons(done.values()))),
        ]
    return "\n".join(parts) + row_notes(rows)


def _intro(
    results: Mapping[str, Any], rows: Mapping[str, Any], done: Mapping[str, Any], *, is_gpu: bool
) -> str:
    environment = results["environment"]
    return INTRO.format(
        device="an NVIDIA GPU" if is_gpu else "a CPU",
        machine=machine_line(environment) if is_gpu else _cpu_machine(environment),
        count=len(rows),
        models=len({name.removesuffix(".ts") for name in rows}),
        built=len(done),
        precisions="fp16 and int8" if is_gpu else "int8",
        level="; kernels are not timed (builder level 0)" if is_gpu else "",
        beside="several at a time on one GPU" if is_gpu else "beside other work on the machine",
        out="docs/results/zoo-h200.json" if is_gpu else "docs/results/zoo-cpu.json",
        flag="cuda" if is_gpu else "cpu",
    )


def _cpu_machine(environment: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    return f"{environment['cpu']}, {environment['available_cores']} cores; {packages}."


def _gpu_line(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    ms, db, products = row["ms"], row.get("sqnr_db", {}), row.get("products", {})
    specs = ("cuda fp32", "cuda fp16", "cuda int8+fp16")
    counted = products.get(specs[2])
    program = row.get("program", {})
    return (
        name,
        row["commit"].removesuffix("+changes")[:7],
        str(row["nodes"]),
        row["ships"].removeprefix("cuda "),
        *(number(ms.get(spec), 3) for spec in specs),
        *(_worst(db.get(spec)) for spec in specs),
        "" if counted is None else f"{counted['int8']} / {counted['all']}",
        ", ".join(f"{count} {kind}" for kind, count in program.get("in_torch", {}).items()),
        number(row["build_s"], 1),
    )


def _cpu_line(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    ms, db = row["ms"], row.get("sqnr_db", {})
    codes = [spec for spec in ms if "int8" in spec]
    best = min(codes, key=lambda spec: ms[spec], default="onnxruntime int8")
    return (
        name,
        row["commit"].removesuffix("+changes")[:7],
        str(row["nodes"]),
        row["ships"],
        number(min((value for spec, value in ms.items() if "int8" not in spec), default=None), 2),
        number(ms.get(best), 2),
        _worst(db.get(best)),
        number(row["build_s"], 1),
    )


def _worst(found: Mapping[str, Any] | str | None) -> str:
    """Of the outputs: the least, or a phrase where one cannot be compared."""
    if found is None or isinstance(found, str):
        return found or ""
    phrases = [value for value in found.values() if isinstance(value, str)]
    if phrases:
        return phrases[0]
    values = [value for value in found.values() if value is not None]
    return f"{min(values):.1f}" if values else "same"


def _reasons(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    """What kept regions out of kernels, by the number of models."""
    counts: Counter[str] = Counter()
    for row in rows:
        program = row.get("program", {})
        told = {*program.get("reasons", ()), *program.get("no_kernel", ())}
        counts.update(reason for reason in told if UNTRIED not in reason)
    return [(reason, str(count)) for reason, count in counts.most_common(40)]
