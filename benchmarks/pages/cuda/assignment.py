# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.cuda_assignment` writes beside its results."""

__all__ = ["FLOATS", "SHIPPED", "cuda_assignment_page"]

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.assignment_page import best_round, culprits
from benchmarks.cuda.timing import ROUNDS
from benchmarks.pages.cuda.engines import machine_line
from benchmarks.pages.page import number, row_notes, table

FLOATS = "fp16"
SHIPPED = "assigned"
UNIFORM = (FLOATS, "int8", "fp8")

INTRO = """# Precisions per region on an NVIDIA GPU

{machine}

*Assigned* is the engine of one `quantrt.build(..., device="cuda")` with `{{"fp16", "int8", "fp8"}}` and a budget. *fp16*, *int8* and
*fp8* are that build's candidates all in one precision: what has no kernel in 8 bits, or a slower one, is fp16 in them, and what
overflows fp16 is FP32. Milliseconds of one run, inputs and outputs on the device: medians of {rounds} rounds in which all took
turns, by CUDA events; a turn is 0.4 s long and its second half counts (up to 001a52b: 30 rounds of 20 runs).

The budget is for noise in the outputs (as a ratio of powers in dB, against ONNX Runtime in FP32; of SDXL's UNet against the build's
own candidate in FP32) where weights are random, and for top-1 on 2,000 CIFAR-10 pictures where the model is trained. `vit-outliers`: two channels of what attention reads of the residual
stream are a thousand times as large in three blocks; `mobilenetv3-ranges`: the channels of residual streams have ranges of 1 to
1,000, which every build evens out for its codes; both without fp8, whose range is wide enough for them. Text has 384 tokens; b32 is
a batch of 32, and of 256 where nothing is said.

Reproduce on a machine with a GPU: `python -m benchmarks.cuda_assignment docs/results/cuda-assignment-h200.json`

"""  # noqa: E501

IN_CODES = """
*8-bit regions*: in a mixed engine, of those that were faster in 8 bits; in another the convolutions and products in 8 bits, of those
that the rules have there: the others were timed, and slower. *Predicted* is of the engine that is shipped, and of the fastest in
codes where that is not mixed; never by its own time. A mixed engine is predicted before it is built, by the layers of the two that it
is a mix of. Another is by its kernels as they were timed one by one, with nothing in L2: the sums of those that compute in floats and
in codes, each by the factor that the row's other engines have for it{before}.
"""  # noqa: E501

BEFORE = "; of {names}, measured before that, both by the fp16 engine's"

BEST = "\n*Best of the three*: the fastest inside the budget, and its time over the assigned engine's.\n"


def cuda_assignment_page(results: dict[str, Any]) -> str:
    """Tables of time, of accuracy, of how precisions were found, and of what stays float."""
    rows = results["rows"]
    parts = [
        INTRO.format(machine=machine_line(results["environment"]), rounds=ROUNDS),
        "## Time\n\n",
        table(
            ("model", *(f"{name} ms" for name in UNIFORM), "assigned ms", "ships", "best of the three"),
            [_times(name, row) for name, row in rows.items()],
        ),
        BEST,
        "\n## Loss\n\n",
        table(
            ("model", "budget", *UNIFORM, SHIPPED),
            [_losses(name, row) for name, row in rows.items()],
        ),
        "\n## Search\n\n",
        table(
            (
                "model",
                "8-bit regions",
                "engines built",
                "predicted ms",
                "measured / predicted",
                "damage s",
                "build s",
                "commit",
            ),
            [_search(name, row) for name, row in rows.items()],
        ),
        IN_CODES.format(before=_before(rows)),
        *(f"\n{name}: {text}.\n" for name, row in rows.items() for text in _told(row)),
        *(text for name, row in rows.items() for text in culprits(name, row)),
    ]
    return "".join(parts) + row_notes(rows)


def _before(rows: dict[str, Any]) -> str:
    """Rows that are predicted as floats alone tell, and have another engine that would tell more."""
    names = [
        name for name, row in rows.items() if len(row.get("predicted_ms", ())) > 1 and "kernels_ms" not in row
    ]
    shown = [name for name in names if not rows[name]["ships"].endswith("mixed")]
    return BEFORE.format(names=", ".join(shown)) if shown else ""


def _told(row: dict[str, Any]) -> Iterator[str]:
    """Why nothing was mixed, and what was done about channels of residual streams."""
    if not row["rounds"]:
        yield row["reason"]
    yield from (note for note in row.get("notes", ()) if "residual streams" in note)


def _times(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    ms = {key: value["p50"] for key, value in row["ms"].items()}
    inside = [one for one in UNIFORM if one in ms and _is_inside(row, one)]
    best = min(inside, key=lambda one: ms[one], default=None)
    return (
        name,
        *(number(ms.get(one), 3) for one in UNIFORM),
        number(ms[SHIPPED], 3),
        str(row["ships"]).removeprefix("cuda "),
        "" if best is None else f"{best}, {ms[best] / ms[SHIPPED]:.2f}x",
    )


def _is_inside(row: dict[str, Any], engine: str) -> bool:
    drop = row["accuracies"][engine]["drop_ratio"]
    return drop is not None and drop <= row["budget"]["max_drop_ratio"]


def _losses(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    is_noise = row["budget"]["metric"] == "sqnr"
    limit = row["budget"]["max_drop_ratio"]
    budget = f"{-10 * math.log10(limit):.0f} dB" if is_noise else f"{limit:.2%} of top-1"
    return (name, budget, *(_loss(row, one, is_noise=is_noise) for one in (*UNIFORM, SHIPPED)))


def _loss(row: dict[str, Any], engine: str, *, is_noise: bool) -> str:
    found = row["accuracies"].get(engine)
    if found is None:
        return row["rejected"].get(engine, "")
    value = found["sqnr_db"] if is_noise else found["drop_ratio"]
    if value is None:
        return "not finite, outside"
    text = f"{value:.1f} dB" if is_noise else f"{value:.2%}"
    return text if _is_inside(row, engine) else f"{text}, outside"


def _in_codes(row: dict[str, Any], best: dict[str, Any] | None) -> str:
    """Regions of a mixed engine; layers of one that is not."""
    if best is not None:
        return f"{best['quantized']} of {best['quantized'] + len(best['float'])}"
    layers = row.get("layers")
    return f"{layers['codes']} of {layers['could']} layers" if layers and layers["could"] else ""


def _predicted(row: dict[str, Any], best: dict[str, Any] | None) -> tuple[float, float] | None:
    """Of the engine in codes that is shipped, or of the fastest where floats are: predicted and measured."""
    if best is not None and row["ships"].endswith("mixed"):
        return best["predicted_ms"], row["ms"][SHIPPED]["p50"]
    known = row.get("predicted_ms", {})
    if not known:
        return None
    fastest = min(known, key=lambda name: row["ms"][name]["p50"])
    return known[fastest], row["ms"][fastest]["p50"]


def _search(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    best = best_round(row)
    predicted = _predicted(row, best)
    return (
        name,
        _in_codes(row, best),
        str(len(row["rounds"])),
        "" if predicted is None else number(predicted[0], 3),
        "" if predicted is None else f"{predicted[1] / predicted[0]:.2f}",
        number(row["stages_s"].get("measuring damage"), 0),
        number(row["build_s"], 0),
        row["commit"] or "unknown",
    )
