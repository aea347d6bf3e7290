# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_attention8` writes beside its results."""

__all__ = ["attention_page", "commits_of"]

import math
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.pages.page import number, table

Row = Mapping[str, Any]

HOPPER = ("attention coded hopper int8", "attention coded hopper floats")
PORTABLE = "attention coded int8"
"""What forms begin with that engines may take, for compute capability 9.0 and for any."""

INTRO = """# Attention in 8 bits

{machine}; {commits}. `python -m benchmarks.cuda_attention8 docs/results/cuda-attention8-h200.json`

Microseconds of one call in a CUDA graph, inputs in L2 where they fit ("hot"), medians; the rate counts the
four operations per score and column of the exact computation. "coded" is a kernel of ours over codes that the
step before it makes of q, k and v: that step's time is in it, and stands beside it. "hopper" is the kernel of
compute capability 9.0, which takes neither masks nor heads above 128; the others are forms of the portable
one. "int8 fp8" multiplies q and k as int8 and weights and values as FP8, "floats fp8" q and k as they are,
"int8 floats" values as they are; "fp8 fp8" is less precise and no faster, so engines do not take it. With
"l1" half of the weights' codes are straight lines between powers of two, with "l2" all; with "turns" the two
consumers of a program begin their products in turn. The error is against float64, of up to 96 queries of each
head; "outliers" has channels of k far from 0 and a few large rows, of which int8 loses much. Masks are added:
"keys" is a number for every key, "padding" minus infinity behind a sample's length, "rows" a number for every
query and key. Engines take these kernels at quantization levels auto and 4, from 512 keys on, and only where
they are faster than the best of the others.

SDPA is torch's `scaled_dot_product_attention` in fp16 with the same mask, the fastest of its cuDNN, flash and
memory-efficient backends that take the shape.
"""

COSTS = """
## What portability costs

The portable kernel, in Triton, beside the one for compute capability 9.0, the codes' making in both. GPUs
without FP8, compute capability 8.0 and 8.6, have its "int8 floats" forms alone; what those take here stands
behind.
"""

LIMITS = """
## What bounds it

Microseconds that the least of the work takes: products on the tensor cores at 1,979 TOP/s of 8 bits, one
exponential for each score at 16 a clock and multiprocessor, of which "l1" needs half and "l2" none, and bytes
at 4.2 TB/s.
"""


def attention_page(results: Mapping[str, Any]) -> str:
    """The best form of each kind at every shape, what bounds it, and all forms at two of the shapes."""
    environment = results["environment"]
    packages = environment["packages"]
    machine = f"{environment['gpu']}; torch {packages['torch']}, triton {packages['triton']}"
    rows = results["rows"]
    head = (
        "attention",
        "SDPA",
        "coded",
        "is",
        "codes",
        "TFLOP/s",
        "relative L2",
        "form",
        "ours in fp16",
        "is",
    )
    parts = [INTRO.format(machine=machine, commits=_told(commits_of(results)))]
    parts.append(table(head, [_best(shape, forms) for shape, forms in rows.items()]))
    parts.append(_without_hopper(rows))
    costs = (
        "attention",
        "SDPA",
        "hopper",
        "portable",
        "is",
        "relative L2",
        "form",
        "int8 floats",
        "is",
        "error",
    )
    parts.append(COSTS)
    parts.append(table(costs, [_cost(shape, forms) for shape, forms in rows.items() if _has_portable(forms)]))
    parts.append(LIMITS)
    bounds = ("attention", "products", "exponentials", "bytes", "coded")
    parts.append(table(bounds, [_bounds(shape, forms) for shape, forms in rows.items()]))
    for shape in list(rows)[:2]:
        parts.append(f"\n## All forms at {shape}\n")
        names = ("form", "us", "of SDPA", "TFLOP/s", "relative L2", "cosine", "registers", "spills")
        parts.append(table(names, list(_all(rows[shape]))))
    return "\n".join(parts)


def _told(commits: list[str]) -> str:
    """One commit; or those of results that were joined."""
    if len(commits) == 1:
        return f"commit {commits[0]}"
    return f"commits {', '.join(commits)}, their results joined (`--join`)"


def commits_of(results: Mapping[str, Any]) -> list[str]:
    """Of the runs that results were measured in."""
    return list(results.get("commits") or [results.get("commit") or "unknown"])


def _fastest(forms: Mapping[str, Row], start: str | tuple[str, ...]) -> tuple[str, Row]:
    """The form whose name begins so that takes the least time; none is as slow as can be."""
    timed = [(name, row) for name, row in forms.items() if name.startswith(start) and "hot_us" in row]
    return min(timed, key=lambda item: item[1]["hot_us"], default=("", {"hot_us": math.nan}))


def _best(shape: str, forms: Mapping[str, Row]) -> tuple[str, ...]:
    library_us = _fastest(forms, "sdpa")[1]["hot_us"]
    name, coded = _fastest(forms, (*HOPPER, PORTABLE))
    ours = {name: row for name, row in forms.items() if "coded" not in name.split()}
    floats_us = _fastest(ours, "attention ")[1]["hot_us"]
    return (
        shape,
        number(library_us, 1),
        number(coded["hot_us"], 1),
        f"{library_us / coded['hot_us']:.2f}x",
        number(coded.get("encode_us"), 1),
        number(coded.get("tflops"), 0),
        f"{coded.get('relative_l2', math.nan):.1%}",
        name.removeprefix("attention coded "),
        number(floats_us, 1),
        f"{library_us / floats_us:.2f}x",
    )


def _without_hopper(rows: Mapping[str, Mapping[str, Row]]) -> str:
    """Which rows have a mask that the kernel of 9.0 takes in fp16, and no figure of it."""
    names = [
        shape
        for shape, forms in rows.items()
        if shape.endswith(("keys", "padding"))
        and not any(name.startswith("attention hopper") for name in forms)
    ]
    if not names:
        return ""
    return f"\n{', '.join(names)}: the kernel of 9.0, which takes this mask in fp16, was not measured.\n"


def _has_portable(forms: Mapping[str, Row]) -> bool:
    return any(name.startswith(PORTABLE) for name in forms)


def _has_hopper(forms: Mapping[str, Row]) -> bool:
    return any(name.startswith(HOPPER) and "hot_us" in row for name, row in forms.items())


def _cost(shape: str, forms: Mapping[str, Row]) -> tuple[str, ...]:
    library_us = _fastest(forms, "sdpa")[1]["hot_us"]
    name, best = _fastest(forms, PORTABLE)
    _, halves = _fastest(forms, f"{PORTABLE} floats")
    return (
        shape,
        number(library_us, 1),
        number(_fastest(forms, HOPPER)[1]["hot_us"] if _has_hopper(forms) else None, 1),
        number(best["hot_us"], 1),
        f"{library_us / best['hot_us']:.2f}x",
        f"{best.get('relative_l2', math.nan):.1%}",
        name.removeprefix("attention coded "),
        number(halves["hot_us"], 1),
        f"{library_us / halves['hot_us']:.2f}x",
        f"{halves.get('relative_l2', math.nan):.1%}",
    )


def _bounds(shape: str, forms: Mapping[str, Row]) -> tuple[str, ...]:
    coded = _fastest(forms, (*HOPPER, PORTABLE))[1]
    keys = ("tensor_us", "exponential_us", "bytes_us", "hot_us")
    return (shape, *(number(coded.get(key), 0) for key in keys))


def _all(forms: Mapping[str, Row]) -> Iterator[tuple[str, ...]]:
    library_us = _fastest(forms, "sdpa")[1]["hot_us"]
    for name, row in sorted(forms.items(), key=lambda item: item[1].get("hot_us", math.inf)):
        if "error" in row:
            yield (name, row["error"], *[""] * 6)
            continue
        registers, spills = (str(row.get(key, "")) for key in ("registers", "spills"))
        yield (
            name,
            number(row["hot_us"], 1),
            f"{library_us / row['hot_us']:.2f}x",
            number(row["tflops"], 0),
            f"{row['relative_l2']:.2%}",
            f"{row['cosine']:.5f}",
            registers,
            spills,
        )
