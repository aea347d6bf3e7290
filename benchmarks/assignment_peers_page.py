# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.assignment_peers`."""

__all__ = ["CONTROL", "FLOAT", "OURS", "QUANTIZING", "READING", "peers_page", "run_of", "runs_of"]

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages.page import number, table
from benchmarks.peer_cases import TOP1
from benchmarks.peers.peers import CONTROLLING, VALIDATING
from benchmarks.record import machine_line, other_machines

OURS = "quantrt"
FLOAT = "ort fp32"

PTQ, CONTROL = "nncf", "nncf accuracy control"

FAILED, NOT_DONE = "failed", "not done"
"""What is told of tools without a model; the second begins what benchmarks.peers.contenders.limited says."""

READING, QUANTIZING = "reading", "quantizing"
MAKING = (READING, "calibrating", QUANTIZING)
"""Stages of a build that end with everything in 8 bits; what comes then is the search."""

SEARCHING = (
    "trying the metric",
    "opening",
    "timing",
    "checking",
    "timing regions",
    "measuring damage",
    "mixing precisions",
    "timing layers",
)
"""Its other stages, in their order."""

FP32, MIXED = " fp32", " mixed"
"""Ends of candidates' names."""

HEAD = """# The engine within a budget, beside other tools (CPU)

{machine}
{others}
The engine that `quantrt build --int8` ships within the budget, and what other tools make of the same model and samples: ONNX
Runtime's `quantize_static` (defaults; u8s8 per channel), `nncf.quantize` and `nncf.quantize_with_accuracy_control` with the same
budget (`model_type=TRANSFORMER` where there is attention). OpenVINO has static shapes and its own float type, which is bf16 on a
CPU that has it. *Loss* is relative to the float model: of top-1; of the faces that it finds, by F1 of anchors; of
Spearman's correlation with how alike people find sentences; or the part of its outputs' power that is noise, of models that decide
nothing. The ratio is a tool's time over the engine's, paired within rounds, with its
99 % interval: above 1 the engine is faster; a turn begins when the threads of the one before are asleep. `persons` and `keywords` have no labels: the float model's classes are
taken for them; what `keywords` hears is made up. `speech` and `sentences` are of one step and one sentence.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 && python -m benchmarks.assignment_peers --models MODELS`; rows that were
made again with `--seconds` have the times of the commit they name.

## Time and loss

"""  # noqa: E501

COLUMNS = ("model", "budget", "contender", "loss", "ms", "ratio", "interval", "commit")

SEARCH = """
## What the search takes

Seconds that all cores computed, of one run each. *Whole* is everything from the float model to the file. *Search itself* of QuantRT
is what its build does beyond quantizing, opening what ships and verifying it once: timing candidates, regions and layers, measuring
damage, mixing, opening all other candidates, and checking those that do not ship. FP32, which verifying runs beside what ships, is
opened once; of a mix every check is search; ranges are chosen for both libraries, which is in *whole* alone. *All but quantizing* is
the build but reading, calibration and the choice of ranges: opening and verifying what ships too. Each is held against all that
NNCF's accuracy control does, which also quantizes, opens and verifies; *NNCF's own search* is accuracy control without what
`nncf.quantize` takes by itself, and the ratio to it is that of all but quantizing. The same pictures are validated on. NNCF times nothing; QuantRT's search holds two libraries, and the rounds in
which its candidates are timed. *Its first model* is that of `nncf.quantize`: where it is inside the budget, accuracy control has
nothing to search for. What was not done after 200 s of processor time was stopped. *Load* is the machine's before the row, runnable
threads over the last minute with those of the row before: it was shared with other work. Seconds of the processor grow with it too:
threads that wait for others look for work meanwhile. Libraries were imported before. With `--kept` other tools' models and seconds
are those of an earlier run here. *FP32 ran on* so many of the pictures to tell that
what is shipped is inside the budget. *Passed* are seconds by the clock on the wall, which other work makes more.

"""  # noqa: E501

SEARCH_COLUMNS = (
    "model",
    "loss of NNCF's first model",
    "NNCF control whole",
    "QuantRT search itself",
    "ratio",
    "all but quantizing",
    "ratio",
    "QuantRT whole",
    "ratio",
    "NNCF's own search",
    "ratio to it",
    "FP32 ran on",
    "NNCF control passed s",
    "QuantRT whole passed s",
    "load",
    "commit",
)

STAGES = """
## Where the seconds go

QuantRT's build, by its stages. *Timing* are the rounds of all candidates; *checking* is accuracy of each candidate that may
ship on every picture, of FP32 on those that tell whether it is inside the budget ([docs/build.md](../build.md)), and the engine at
other batch sizes; *trying the metric* is that of `sentences` on a few samples, before anything is built; *timing regions*, *measuring damage* and *mixing precisions* are for a mix of 8 bits and floats; *timing layers*
is for the report.

"""  # noqa: E501

CONTROL_STAGES = """
NNCF's accuracy control, by its stages. *Validating* is the float model and each of its own on the pictures, one by one.

"""  # noqa: E501


RUNS = """
## From run to run

Every run of this benchmark whose seconds are known by stages, the one above last. What is not surely faster is not shipped: with
other work on both cores the guard ships FP32 or bf16 where a quieter machine shows that codes gain.

"""  # noqa: E501

RUNS_COLUMNS = (
    "model",
    "commit",
    "ships",
    "loss",
    "load",
    "timing CPU s",
    "all but quantizing CPU s",
    "whole CPU s",
)


def peers_page(results: dict[str, Any]) -> str:
    """Markdown: a row per contender, a row per search, and where its seconds go."""
    models = results["models"]
    staged = {name: case for name, case in models.items() if "stages_cpu_s" in case["contenders"][OURS]}
    controlled = {
        name: case for name, case in staged.items() if _missing(case["contenders"][CONTROL]) != FAILED
    }
    parts = [
        HEAD.format(machine=machine_line(results["environment"]), others=other_machines(models.items())),
        table(COLUMNS, [row for name, case in models.items() for row in _contenders(name, case)]),
        _failures(models),
        SEARCH,
        table(SEARCH_COLUMNS, [_search(name, case) for name, case in staged.items()]),
        STAGES,
        _stages(staged, OURS, (*MAKING, *SEARCHING)),
        CONTROL_STAGES,
        _stages(controlled, CONTROL, (QUANTIZING, VALIDATING, CONTROLLING)),
        RUNS,
        table(RUNS_COLUMNS, [row for name in staged for row in _runs(results, name)]),
    ]
    return "".join(parts)


def run_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a row when another run has taken its place."""
    ours = row["contenders"][OURS]
    return {
        "commit": row["commit"],
        "load_before": row["load_before"],
        "ships": row["ships"],
        "drop_ratio": ours["drop_ratio"],
        "timing_cpu_s": ours["stages_cpu_s"].get("timing", 0.0),
        "search_cpu_s": _search_s(ours),
        "made_cpu_s": ours["made_cpu_s"],
    }


def runs_of(results: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Those of a model so far; of a row without any, itself where its seconds are known by stages."""
    row = results["models"].get(name, {})
    if "runs" in row or "stages_cpu_s" not in row.get("contenders", {}).get(OURS, {}):
        return list(row.get("runs", []))
    return [run_of(row)]


def _runs(results: Mapping[str, Any], name: str) -> Iterator[list[str]]:
    for run in runs_of(results, name):
        figures = (run[key] for key in ("load_before", "timing_cpu_s", "search_cpu_s", "made_cpu_s"))
        yield [
            name,
            run["commit"],
            run["ships"],
            f"{run['drop_ratio']:.2%}",
            *(number(figure, 1) for figure in figures),
        ]


def _search_s(ours: Mapping[str, Any]) -> float:
    return sum(spent_s for stage, spent_s in ours["stages_cpu_s"].items() if stage not in MAKING)


def _itself(case: Mapping[str, Any], whole_s: float, less: str) -> tuple[str, str]:
    """Seconds of the search itself, and their ratio; nothing for rows of before they were told."""
    spent_s = _search_itself_s(case)
    return ("", "") if spent_s is None else (number(spent_s, 1), less + number(spent_s / whole_s, 2))


def _search_itself_s(case: Mapping[str, Any]) -> float | None:
    """Without opening what ships and, to verify it, FP32, and without its one check; None if not known."""
    ours, ships = case["contenders"][OURS], case["ships"]
    if "candidates_cpu_s" not in ours:
        return None
    opening, checking = (ours["candidates_cpu_s"].get(stage, {}) for stage in ("opening", "checking"))
    verified_s = 0.0 if ships.endswith(MIXED) else checking.get(ships, 0.0)
    once = {ships} if ships.endswith(FP32) else {ships, next(name for name in opening if name.endswith(FP32))}
    return _search_s(ours) - verified_s - sum(opening.get(name, 0.0) for name in once)


def _stages(models: Mapping[str, Any], contender: str, stages: Sequence[str]) -> str:
    """A row per model."""
    rows = []
    for name, case in models.items():
        spent_s = case["contenders"][contender].get("stages_cpu_s", {})
        rows.append([name, *(number(spent_s.get(stage, 0.0), 1) for stage in stages)])
    return table(("model", *(f"{stage} CPU s" for stage in stages)), rows)


def _contenders(name: str, case: dict[str, Any]) -> Iterator[list[str]]:
    for contender, row in case["contenders"].items():
        is_ours = contender == OURS
        if "drop_ratio" not in row:
            yield [name, _budget(case), contender, _missing(row), "", "", "", _timed_commit(case)]
            continue
        yield [
            name,
            _budget(case),
            f"quantrt ({case['ships']})" if is_ours else contender,
            _loss(row["drop_ratio"], case["budget"]),
            f"{row['median_ms']:.3g}",
            "" if is_ours else f"{row['ratio']:.2f}",
            "" if is_ours else f"{row['lo']:.2f} to {row['hi']:.2f}",
            _timed_commit(case),
        ]


def _budget(case: dict[str, Any]) -> str:
    """With what it is of; rows of before that was told are of top-1."""
    return f"{case['budget']:.2%} of {case.get('budget_of', TOP1)}"


def _missing(row: dict[str, Any]) -> str:
    """How a tool is told of that has nothing to show; empty where it has."""
    if "drop_ratio" in row:
        return ""
    return NOT_DONE if row.get("error", NOT_DONE).startswith(NOT_DONE) else FAILED


def _failures(models: Mapping[str, Any]) -> str:
    """Why tools failed."""
    return "".join(
        f"\n{name}, {contender}: `{row['error']}`\n"
        for name, case in models.items()
        for contender, row in case["contenders"].items()
        if _missing(row) == FAILED
    )


def _timed_commit(case: dict[str, Any]) -> str:
    """Of the engine and its times; a row whose seconds were measured again has two."""
    return str(case.get("timed_commit", case["commit"]))


def _loss(drop_ratio: float, budget: float) -> str:
    return f"{drop_ratio:.2%}{', outside' if drop_ratio > budget else ''}"


def _search(name: str, case: dict[str, Any]) -> list[str]:
    ours, first, control = (case["contenders"][key] for key in (OURS, PTQ, CONTROL))
    if _missing(control) == FAILED:
        return _search_alone(name, case)
    whole_s, own_s = control["made_cpu_s"], control["made_cpu_s"] - first["made_cpu_s"]
    search_s = _search_s(ours)
    more, less = ("", "") if "drop_ratio" in control else ("over ", "under ")
    return [
        name,
        _loss(first["drop_ratio"], case["budget"]) if "drop_ratio" in first else _missing(first),
        more + number(whole_s, 1),
        *_itself(case, whole_s, less),
        number(search_s, 1),
        less + number(search_s / whole_s, 2),
        number(ours["made_cpu_s"], 1),
        less + number(ours["made_cpu_s"] / whole_s, 2),
        more + number(own_s, 1),
        less + number(search_s / own_s, 2),
        _ran_on(case),
        more + number(control["made_s"], 1),
        number(ours["made_s"], 1),
        number(case["load_before"], 1),
        case["commit"],
    ]


def _search_alone(name: str, case: dict[str, Any]) -> list[str]:
    """Where there is nothing to hold it against."""
    ours = case["contenders"][OURS]
    itself_s = number(_search_itself_s(case), 1)
    spent_s = [itself_s, "", number(_search_s(ours), 1), "", number(ours["made_cpu_s"], 1), ""]
    last = [_ran_on(case), "", number(ours["made_s"], 1), number(case["load_before"], 1), case["commit"]]
    return [name, FAILED, FAILED, *spent_s, "", "", *last]


def _ran_on(case: dict[str, Any]) -> str:
    """Nothing where FP32 is shipped, and for rows of before it was told."""
    ran = case.get("float_samples")
    return "" if ran is None else f"{ran} of {case.get('samples', case.get('pictures'))}"
