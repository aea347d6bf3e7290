# SPDX-License-Identifier: Apache-2.0
"""Q/DQ files within a budget: `python -m benchmarks.quantize_budget MODELS [NAME ...] --peers FOLDER`.

`quantrt quantize` for each of its targets beside `nncf.quantize_with_accuracy_control`, with the same
calibration samples and the same target on them: decisions agree with FP32's on 99 %, or, of models without
decisions, outputs differ by at most 1 % of their power. What each makes is judged on other samples. NNCF's
models are kept in FOLDER with what they took, and are not made again while they are there. A second run adds
its models to the results.

    --limit-s N    that NNCF has failed when it is not done after N seconds of processor time
    --kept NAME    takes NNCF's row of this model from results of `benchmarks.accuracy_control`; repeatable
"""

__all__ = ["measure", "page"]

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pages.page import failures, number, table
from benchmarks.peers.contenders import ACCURATE, CONTROLLED_DROP_RATIO, Contender, Opened, nncf_controlled
from benchmarks.peers.on_codes import file_products
from benchmarks.peers.peers import open_openvino
from benchmarks.peers.within_budget import open_within_budget
from benchmarks.record import (
    commit,
    load_results,
    machine_line,
    other_machine,
    other_machines,
    write_results,
)
from benchmarks.tasks.decisions import metric_of
from benchmarks.tasks.judge import TOOL_ERRORS, float_outputs, judge, reason
from benchmarks.tasks.real_tasks import TASK_NAMES, load_task
from benchmarks.tasks.task import Task

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "quantize-budget-cpu.json"
CONTROLLED = RESULTS.with_name("accuracy-control-cpu.json")
NNCF = "nncf"
OURS = {
    "ort": ("ort", None),
    "openvino": ("openvino", None),
    "openvino accurate": ("openvino", ACCURATE),
    "tensorrt": ("tensorrt", None),
}
"""Name in the results -> target and recipe."""

MEGABYTE = 1e6

HEAD = f"""# Q/DQ files within a budget (CPU)

{{machine}}
{{others}}
`quantrt quantize` for ONNX Runtime, OpenVINO and TensorRT, with its defaults and, for OpenVINO, with the recipe
`accurate` too, beside `nncf.quantize_with_accuracy_control` (`nncf`), from the same calibration samples. The target
of all is of these samples: decisions agree with FP32's on {1 - CONTROLLED_DROP_RATIO:.0%}, or, of models without decisions, outputs differ
by at most {CONTROLLED_DROP_RATIO:.0%} of their power (20 dB). `on calibration` is what was reached on them.

What is shown behind it is of the other samples on which [accuracy-cpu.md](accuracy-cpu.md) judges; files for OpenVINO
run there, those for ONNX Runtime and TensorRT in ONNX Runtime, in a session without any option. `in floats` counts the
products (Conv, ConvTranspose, Gemm, MatMul) that do not compute on codes, `of multiply-adds` is their share of these
for one sample. `CPU s` is processor time of the whole command in Python, calibration with it, beside other work on
this machine; of NNCF's rows with a `*`, which are those of [accuracy-control-cpu.md](accuracy-control-cpu.md), it is wall time of
another day. `MB` is of the file, NNCF's .xml and .bin. `outside` is what leaves nothing inside the target.

Reproduce: `python -m benchmarks.models MODELS all-MiniLM-L6-v2 && python -m benchmarks.quantize_budget MODELS --peers FOLDER`

"""  # noqa: E501


def main() -> None:
    parser = argparse.ArgumentParser(description="Q/DQ files within a budget, QuantRT and NNCF.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("names", nargs="*", default=TASK_NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--peers", type=Path, required=True, metavar="FOLDER", help="keeps NNCF's models")
    parser.add_argument("--only-peers", action="store_true", help="make NNCF's models alone")
    parser.add_argument("--limit-s", type=int, metavar="N", help="processor seconds that NNCF may take")
    parser.add_argument("--kept", action="append", default=[], metavar="NAME", help="NNCF's row is known")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    args.peers.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        task = load_task(name, args.models)
        peer = _kept_peer(name) if name in args.kept else _make_peer(task, args.peers, args.limit_s)
        if args.only_peers:
            continue
        results = load_results(args.out, any_machine=True)
        results["models"][name] = measure(task, args.peers, peer) | other_machine(results)
        order = [one for one in TASK_NAMES if one in results["models"]]
        results["models"] = {one: results["models"][one] for one in order}
        write_results(args.out, results, page(results))
        print(name, json.dumps(results["models"][name]["contenders"], indent=1))


def measure(task: Task, folder: Path, peer: Mapping[str, Any]) -> dict[str, Any]:
    """All files of one task, on other samples than they were made on.

    Args:
        peer: what `_make_peer` left.
    """
    reference = float_outputs(task)
    rows: dict[str, dict[str, Any]] = {}
    for name, (target, recipe) in OURS.items():
        contender = Contender(name, partial(open_within_budget, task, target, recipe))
        rows[name] = judge(contender, task, reference).row
    rows[NNCF] = dict(peer)
    if not {"error", "commit"} & peer.keys():
        rows[NNCF] |= judge(Contender(NNCF, partial(_open_peer, task, folder)), task, reference).row
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": reference.samples,
        "metric": metric_of(task),
        "score_name": "" if task.score is None else task.score.name,
        "float_score": None if task.score is None else task.score.of(reference.arrays()),
        "contenders": rows,
    }


@contextmanager
def _open_peer(task: Task, folder: Path) -> Iterator[Opened]:
    runner = open_openvino(folder / f"{task.name}.xml", precision="f32")
    yield Opened(lambda inputs: runner.run(dict(inputs)))


def _make_peer(task: Task, folder: Path, limit_s: int | None) -> dict[str, Any]:
    """NNCF's model of a task in a folder, unless it is there already, and what is known of it."""
    path, told = folder / f"{task.name}.xml", folder / f"{task.name}.json"
    if told.exists():
        kept: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
        return kept
    began = time.process_time()
    try:
        nncf_controlled(task, task.path, path, task.calibration, limit_s=limit_s)
    except TOOL_ERRORS as error:
        facts: dict[str, Any] = {"error": reason(error)}
    else:
        facts = {"cpu_seconds": time.process_time() - began, **file_products(path, task.calibration[0])}
        facts["file_mb"] = sum(file.stat().st_size for file in (path, path.with_suffix(".bin"))) / MEGABYTE
    told.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def _kept_peer(name: str) -> dict[str, Any]:
    """NNCF's row of a model at the same target, on the same samples, as another benchmark left it."""
    model = json.loads(CONTROLLED.read_text(encoding="utf-8"))["models"][name]
    row: dict[str, Any] = model["contenders"][NNCF]
    return row | {"commit": model["commit"]}


def page(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    models = results["models"]
    machine, others = machine_line(results["environment"]), other_machines(models.items())
    columns = (
        "model",
        "made by",
        "all int8",
        "on calibration",
        "agreement",
        "SQNR dB",
        "metric",
        "FP32",
        "its",
        "in floats",
        "of multiply-adds",
        "CPU s",
        "MB",
        "commit",
    )
    rows = [
        _row(name, contender, model) for name, model in models.items() for contender in model["contenders"]
    ]
    return HEAD.format(machine=machine, others=others) + table(columns, rows) + failures(models)


def _row(name: str, contender: str, model: dict[str, Any]) -> list[str]:
    row = model["contenders"][contender]
    if "error" in row:
        return [name, contender, "outside" if contender != NNCF else "failed", *[""] * 11]
    is_noise = model["metric"] == "sqnr"
    return [
        name,
        contender,
        _kept(row.get("all_int8_drop"), is_noise=is_noise),
        _kept(row.get("drop_on_calibration"), is_noise=is_noise),
        number(row.get("agreement_ratio"), 4),
        ", ".join(number(value, 2) for value in row["sqnr_db"].values()),
        model["score_name"],
        number(model["float_score"], 4),
        number(row.get("score"), 4),
        f"{row['in_floats']} of {row['products']}",
        "" if "float_ratio" not in row else f"{row['float_ratio']:.1%}",
        number(row["cpu_seconds"], 1) if "cpu_seconds" in row else f"{row['seconds']:.0f}*",
        number(row["file_mb"], 2),
        row.get("commit", model["commit"]),
    ]


def _kept(drop: float | None, *, is_noise: bool) -> str:
    """What is left of the metric: agreement, or the share of noise."""
    if drop is None:
        return ""
    return f"noise {drop:.2%}" if is_noise else f"{1.0 - drop:.4f}"


if __name__ == "__main__":
    main()
