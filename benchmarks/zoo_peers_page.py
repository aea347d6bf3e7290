# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.zoo_peers`."""

__all__ = ["ENGINE", "FLOAT", "zoo_peers_page"]

from collections.abc import Mapping
from typing import Any

from benchmarks.pages.page import failures, number, table
from benchmarks.record import machine_line, other_machines

FLOAT, ENGINE = "ort fp32", "quantrt"
"""What others are held against, and QuantRT's engine within its default budget."""

FLOATS = (FLOAT, "openvino", "openvino f32")

HEAD = """# Deployed architectures beside other tools (CPU)

{machine}
{others}
Architectures that people run on CPUs, at the sizes that they have there, with weights that are drawn, as the
[zoo](zoo-cpu.md)'s are: SQNR tells what rounding does to the outputs of such a network, and nothing of the
accuracy of a trained one. ONNX Runtime's `quantize_static` (u8s8 per channel), `nncf.quantize`
(`model_type=TRANSFORMER` where there is attention) and QuantRT were given the same {samples} samples; SQNR is
of each tool's worst output on others, against ONNX Runtime in FP32. QuantRT's *onnxruntime int8*, *openvino
int8* and *openvino int8+bf16* have everything in 8 bits that can be{shipped}. Other tools' OpenVINO has
static shapes, and its own float type (bf16 on a CPU that has it) or f32. One sample at a time, in turns; a
turn begins when the threads of the one before are asleep. The ratio is a contender's time over that of
QuantRT's fastest model in codes, paired within rounds, with its 99 % interval: above 1 QuantRT's is faster.
{timed}
The machine was shared with other work; *load* is its runnable threads over the minute before the row.

Reproduce: `python -m benchmarks.zoo_peers FOLDER{options}`
"""

SHIPPED = "; *within its budget* is what `quantrt build --int8` ships by default"
OPTIONS = " --one-core --only-codes"
ONE_CORE = "Milliseconds are of the processor, of one thread: others' work counts for less in them."
ALL_CORES = "Milliseconds are by the clock, on all cores."

BEST = """
## The int8 engine against the fastest int8 of other tools

"""
BEST_COLUMNS = (
    *("model", "QuantRT's fastest in codes", "ms", "dB", "fastest other", "ms", "dB", "ratio", "interval"),
    *("ratio to fastest float", "ships within the budget", "load", "commit"),
)

ALL = """
## Every contender

"""
ALL_COLUMNS = ("model", "contender", "ms", "ratio", "interval", "SQNR dB")

NO_NOISE_DB = 200.0
"""Above it outputs are the same."""


def zoo_peers_page(results: Mapping[str, Any]) -> str:
    """Both tables, and why contenders failed."""
    models = results["models"]
    return (
        HEAD.format(
            machine=machine_line(results["environment"]),
            others=other_machines(models.items()),
            samples=16,
            shipped=SHIPPED if any(row["ships"] for row in models.values()) else "",
            options=OPTIONS if all(row["one_core"] and not row["ships"] for row in models.values()) else "",
            timed=" ".join(
                text
                for text, is_one in ((ONE_CORE, True), (ALL_CORES, False))
                if any(row["one_core"] == is_one for row in models.values())
            ),
        )
        + BEST
        + table(BEST_COLUMNS, [_best(name, row) for name, row in models.items()])
        + ALL
        + table(ALL_COLUMNS, [line for name, row in models.items() for line in _all(name, row)])
        + failures(models)
    )


def _best(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    timed = {key: one for key, one in row["contenders"].items() if "median_ms" in one}
    ours = timed[row["codes"]]
    codes = [key for key in timed if key.startswith(("nncf", "ort u8s8"))]
    floats = [key for key in timed if key in FLOATS]
    fastest, fastest_float = (min(keys, key=lambda key: timed[key]["ratio"]) for keys in (codes, floats))
    other = timed[fastest]
    return (
        name,
        row["codes"],
        _ms(ours),
        _db(ours),
        fastest,
        _ms(other),
        _db(other),
        number(other["ratio"], 3),
        _interval(other),
        number(timed[fastest_float]["ratio"], 2),
        row["ships"] or "",
        number(row["load_before"], 1),
        row["commit"],
    )


def _all(name: str, row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (name, _label(key, row), _ms(one), number(one["ratio"], 3), _interval(one), _db(one))
        for key, one in row["contenders"].items()
        if "median_ms" in one
    ]


def _label(key: str, row: Mapping[str, Any]) -> str:
    """Of a contender; QuantRT's own say so."""
    if key == ENGINE:
        return f"quantrt, within its budget ({row['ships']})"
    return f"quantrt, {key}" if key in row["own"] else key


def _ms(one: Mapping[str, Any]) -> str:
    return f"{one['median_ms']:.3g}"


def _db(one: Mapping[str, Any]) -> str:
    return "same" if one["sqnr_db"] > NO_NOISE_DB else number(one["sqnr_db"], 1)


def _interval(one: Mapping[str, Any]) -> str:
    return f"{one['lo']:.3f} to {one['hi']:.3f}"
