# SPDX-License-Identifier: Apache-2.0
"""The kernels of a transformer's layers in the timing cache of a build on a GPU, with the work they do."""

__all__ = ["kernels_of"]

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BYTES = {"float16": 2, "int8": 1, "float8_e4m3fn": 1}
PRECISIONS = {"float16": "fp16", "int8": "int8", "float8_e4m3fn": "fp8"}
FORM = re.compile(r"(\w+)\[([\d, ]+)\]")

Form = tuple[str, tuple[int, ...]]


def kernels_of(path: Path, batch: int, tokens: int) -> dict[str, list[dict[str, Any]]]:
    """The fastest kernel of every workload over all tokens of a batch, by the precision of its codes.

    Args:
        path: of the timing cache.
        tokens: of one sample.
    """
    found: dict[str, list[dict[str, Any]]] = {precision: [] for precision in PRECISIONS.values()}
    for entry in json.loads(path.read_text())["workloads"].values():
        inputs = [_form(text) for text in entry["inputs"]]
        timed = {name: row["median_us"] for name, row in entry["tactics"].items() if "median_us" in row}
        facts = _facts(entry, inputs) if timed and _is_of_layers(inputs, batch, tokens) else None
        if facts is None:
            continue
        tactic = min(timed, key=lambda name: timed[name])
        for precision in _precisions(entry, inputs):
            found[precision].append({**facts, "tactic": tactic, "us": timed[tactic], "count": None})
    return {precision: sorted(rows, key=lambda row: -row["us"]) for precision, rows in found.items()}


def _form(text: str) -> Form:
    match = FORM.fullmatch(text)
    if match is None:
        return "", ()
    return match.group(1), tuple(map(int, match.group(2).split(",")))


def _is_of_layers(inputs: Sequence[Form], batch: int, tokens: int) -> bool:
    """Whether it reads halves or codes of all tokens: not numbers of words, nor a mask."""
    dtype, shape = inputs[0] if inputs else ("", ())
    return dtype in BYTES and shape[0] == batch and tokens in shape[1:-1]


def _precisions(entry: Mapping[str, Any], inputs: Sequence[Form]) -> Iterator[str]:
    """The engine that a workload is of: by the codes that it reads or stores."""
    codes = {inputs[0][0], *entry["outputs"]} & {"int8", "float8_e4m3fn"}
    yield PRECISIONS[min(codes)] if codes else "fp16"


def _facts(entry: Mapping[str, Any], inputs: Sequence[Form]) -> dict[str, Any] | None:
    """What is done; None for another formula."""
    dtype, shape = inputs[0]
    rows = math.prod(shape[:-1])
    moved = sum(BYTES.get(kind, 0) * math.prod(sizes) for kind, sizes in inputs)
    facts = {"kind": entry["formula"], "stores": list(entry["outputs"]), "inputs": shape[-1]}
    written = sum(BYTES.get(kind, 4) for kind in entry["outputs"])
    if entry["formula"] == "Gemm":
        _, weight = _form(entry["weight"])
        columns = math.prod(weight) // shape[-1]
        name = f"product {rows}x{columns}x{shape[-1]}" + (" + residual" if len(inputs) > 1 else "")
        held = math.prod(weight) * BYTES[dtype]
        work = {"operations": 2 * rows * math.prod(weight), "bytes": moved + held + rows * columns * written}
        return {**facts, **work, "label": name, "computes_in": PRECISIONS[dtype], "exponentials": 0}
    if entry["formula"] == "Attention":
        (B, H, S, D), keys = shape, inputs[2][1][2]
        work = {"operations": 4 * B * H * S * keys * D, "bytes": moved + B * H * S * D * written}
        name = f"attention {B}x{H}x{S}x{D}"
        return {**facts, **work, "label": name, "computes_in": "fp16", "exponentials": B * H * S * keys}
    if entry["formula"] == "Rows":
        name, size = f"norm {rows}x{shape[-1]}", moved + math.prod(shape) * written
        work = {"operations": 0, "bytes": size, "exponentials": 0}
        return {**facts, **work, "label": name, "computes_in": "fp16"}
    return None
