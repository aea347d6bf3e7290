# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.assignment_peers`."""

__all__ = ["FLOAT", "OURS", "peers_page"]

from collections.abc import Iterator
from typing import Any

from benchmarks.page import number, table
from benchmarks.record import machine_line

OURS = "quantrt"
FLOAT = "ort fp32"

PTQ, CONTROL = "nncf", "nncf accuracy control"

HEAD = """# The engine within a budget, beside other tools (CPU)

{machine}

The engine that `quantrt build --int8` ships within the budget, and what other tools make of the same model and samples: ONNX
Runtime's `quantize_static` (defaults; u8s8 per channel), `nncf.quantize` and `nncf.quantize_with_accuracy_control` with the same
budget, relative to the float model's top-1 (`model_type=TRANSFORMER` where there is attention). OpenVINO has static shapes and
its own float type, which is bf16 on a CPU that has it. The ratio is a tool's time over the engine's, paired within rounds, with its
99 % interval: above 1 the engine is faster. `persons` has no labels: the float model's classes are taken for them.

Reproduce: `python -m benchmarks.assignment_peers`

## Time and loss

"""  # noqa: E501

COLUMNS = ("model", "budget", "contender", "loss of top-1", "ms", "ratio", "interval", "commit")

SEARCH = """
## What the search takes

Seconds that all cores computed, of one run each. *Made* is everything from the float model to the file. *Search* is that without
what it takes to make everything 8-bit: of NNCF's accuracy control without what `nncf.quantize` takes, of QuantRT without
calibration and the choice of ranges. The same pictures are validated on. NNCF times nothing; QuantRT's search holds two libraries,
and the rounds in which its candidates are timed. *Its first model* is that of `nncf.quantize`: where it is inside the budget,
accuracy control has nothing to search for. What was not done after 200 s of processor time was stopped. *Load* is
the machine's before the row, runnable threads over the last minute with those of the row before: it was shared with other work for
parts of the run. Libraries were imported before. With `--kept` other tools' models and seconds are those of an earlier run here.

"""  # noqa: E501

SEARCH_COLUMNS = (
    "model",
    "loss of NNCF's first model",
    "NNCF made CPU s",
    "QuantRT made CPU s",
    "ratio",
    "NNCF search CPU s",
    "QuantRT search CPU s",
    "ratio",
    "QuantRT search to NNCF made",
    "load",
)


def peers_page(results: dict[str, Any]) -> str:
    """Markdown: a row per contender, and a row per search."""
    models = results["models"]
    parts = [
        HEAD.format(machine=machine_line(results["environment"])),
        table(COLUMNS, [row for name, case in models.items() for row in _contenders(name, case)]),
        SEARCH,
        table(SEARCH_COLUMNS, [_search(name, case) for name, case in models.items()]),
    ]
    return "".join(parts)


def _contenders(name: str, case: dict[str, Any]) -> Iterator[list[str]]:
    for contender, row in case["contenders"].items():
        is_ours = contender == OURS
        if "drop_ratio" not in row:
            yield [name, f"{case['budget']:.2%}", contender, "not done", "", "", "", case["commit"]]
            continue
        yield [
            name,
            f"{case['budget']:.2%}",
            f"quantrt ({case['ships']})" if is_ours else contender,
            _loss(row["drop_ratio"], case["budget"]),
            f"{row['median_ms']:.3g}",
            "" if is_ours else f"{row['ratio']:.2f}",
            "" if is_ours else f"{row['lo']:.2f} to {row['hi']:.2f}",
            case["commit"],
        ]


def _loss(drop_ratio: float, budget: float) -> str:
    return f"{drop_ratio:.2%}{', outside' if drop_ratio > budget else ''}"


def _search(name: str, case: dict[str, Any]) -> list[str]:
    ours, first, control = (case["contenders"][key] for key in (OURS, PTQ, CONTROL))
    made_s, search_s = control["made_cpu_s"], control["made_cpu_s"] - first["made_cpu_s"]
    more, less = ("", "") if "drop_ratio" in control else ("over ", "under ")
    return [
        name,
        _loss(first["drop_ratio"], case["budget"]),
        more + number(made_s, 1),
        number(ours["made_cpu_s"], 1),
        less + number(ours["made_cpu_s"] / made_s, 2),
        more + number(search_s, 1),
        number(ours["search_cpu_s"], 1),
        less + number(ours["search_cpu_s"] / search_s, 2),
        less + number(ours["search_cpu_s"] / made_s, 2),
        number(case["load_before"], 1),
    ]
