# SPDX-License-Identifier: Apache-2.0
"""Accuracy of int8 on real models, against the peers: `python -m benchmarks.accuracy MODELS [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled (only all-MiniLM-L6-v2 is used); the other models and all
data come from the data folder. Everything is calibrated on the same samples and judged on others: per output
signal over quantization noise against FP32 in ONNX Runtime, how often decisions agree with FP32's, and the
model's own metric where there are labels. QuantRT's int8 engine is the faster of its int8 candidates, as
`quantrt.build` would take it without a bound on accuracy; the recipe `accurate` is measured in the same
library. What it makes to the target of NNCF's accuracy control is held against that, both in OpenVINO. A
second run adds its models to the results.

    --model-optimizer PYTHON    a Python with nvidia-modelopt[onnx], which wants packages of its own
    --no-control                without NNCF's accuracy control, which takes hours on the larger models
    --control-limit-s N         that control has failed when it is not done after N seconds of processor time
    --keep FOLDER               peers' figures are kept there, and not measured again
    --keep-library              QuantRT's int8 is in the library that was faster when the model's row was made
                                before, not in the one that is faster now: on a machine that others use

What is compared, and on how many samples, is the same for all and fixed in `benchmarks.picture_tasks` and
`benchmarks.tasks.real_tasks`.
"""

__all__ = ["measure_task"]

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.accuracy_page import accuracy_page
from benchmarks.model_optimizer import model_optimizer_version
from benchmarks.peers.contenders import ACCURATE, CONTROL, TO_TARGET, Contender, make_quantrt, peer_contenders
from benchmarks.peers.kept import judge_once
from benchmarks.peers.within_budget import open_within_budget
from benchmarks.record import commit, load_results, machine_name, other_machine, write_results
from benchmarks.tasks.judge import Outputs, float_outputs, judge
from benchmarks.tasks.paired import Judged, compare_agreement, compare_score, compare_sqnr
from benchmarks.tasks.real_tasks import TASK_NAMES, load_task
from benchmarks.tasks.task import Task
from quantrt.recipe import load_recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-cpu.json"

PEERS = ("ort default", "nncf default", "nncf read_model")
"""The peers with their defaults, the best of which is the bar of what happens without a recipe."""


def main() -> None:
    args = _parser().parse_args()
    results = load_results(args.out, any_machine=True)
    for name in args.names:
        task = load_task(name, args.models)
        limit_s = 0 if args.no_control else args.control_limit_s
        timed = _timed(results, name) if args.keep_library else None
        row = measure_task(task, args.model_optimizer, control_limit_s=limit_s, keep=args.keep, timed=timed)
        results["models"][name] = row | other_machine(results)
        order = [task for task in TASK_NAMES if task in results["models"]]
        results["models"] = {task: results["models"][task] for task in order}
        write_results(args.out, results, accuracy_page(results))
        _print(name, row)


def _timed(results: Mapping[str, Any], name: str) -> dict[str, str] | None:
    """Which library was faster when a model's row was made before, at which commit and on which machine."""
    row = results["models"].get(name)
    if row is None:
        return None
    here = machine_name(results["environment"])
    made = {"library": row["int8_library"], "commit": row["commit"], "machine": row.get("machine", here)}
    return made | row.get("int8_timed", {})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Accuracy of int8 on real models, QuantRT and its peers.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("names", nargs="*", default=TASK_NAMES, metavar="NAME", help="default: all models")
    parser.add_argument(
        "--model-optimizer", type=Path, metavar="PYTHON", help="one with nvidia-modelopt[onnx]"
    )
    parser.add_argument("--no-control", action="store_true", help="without NNCF's accuracy control")
    parser.add_argument(
        "--control-limit-s", type=int, metavar="N", help="processor seconds that control may take"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="peers' figures, measured once")
    parser.add_argument("--keep-library", action="store_true", help="int8 in the library of the row before")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; tables go beside it")
    return parser


def measure_task(
    task: Task,
    model_optimizer: Path | None = None,
    *,
    control_limit_s: int | None = None,
    keep: Path | None = None,
    timed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Every contender on one task, and QuantRT's int8 engine against the best peer.

    Args:
        model_optimizer: a Python that has it; None leaves it out.
        control_limit_s: processor seconds that NNCF's accuracy control may take: None for all that it wants,
            0 to leave it out.
        keep: where the peers' figures are kept; None measures all of them.
        timed: the library of QuantRT's int8, with the commit and machine that it was faster at; None for the
            one that is faster now.
    """
    reference = float_outputs(task)
    ours = make_quantrt(task)
    judge_peer = judge if keep is None else partial(judge_once, folder=keep)
    library = ours.int8 if timed is None else timed["library"]
    to_target = Contender(TO_TARGET, partial(open_within_budget, task, "openvino", ACCURATE))
    peers = peer_contenders(task, model_optimizer, control_limit_s=control_limit_s)
    judged = {one.name: judge(one, task, reference) for one in (*ours.contenders, to_target)}
    judged |= {contender.name: judge_peer(contender, task, reference) for contender in peers}
    every_peer = [name for name in judged if name.split()[0] not in ("quantrt", ACCURATE)]
    judged["quantrt int8"] = judged[f"quantrt {library}"]
    judged[f"quantrt {ACCURATE}"] = judged[f"{ACCURATE} {library}"]
    all_codes = [name for name in every_peer if name != CONTROL]
    mine = f"quantrt {ACCURATE}"
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": reference.samples,
        "validation_sources": int(task.sources.max()) + 1,
        "score_name": "" if task.score is None else task.score.name,
        "float_score": None if task.score is None else task.score.of(reference.arrays()),
        "note": task.note,
        "int8_library": library,
        **({} if timed is None else {"int8_timed": dict(timed)}),
        "range_methods": ours.methods,
        "accurate_options": dict(load_recipe(ACCURATE).quantize),
        "shipped": ours.engine.report["verdict"],
        "contenders": {name: item.row for name, item in judged.items()},
        "comparisons": _compare(
            judged, "quantrt int8", PEERS, reference.names, task, with_score=task.decisions is None
        ),
        "accurate_comparisons": _compare(judged, mine, every_peer, reference.names, task),
        "all_codes_comparisons": _compare(judged, mine, all_codes, reference.names, task),
        "target_comparisons": _compare(judged, TO_TARGET, [CONTROL], reference.names, task),
        "float_comparison": _beside_floats(judged[mine], reference, task),
        "model_optimizer": None if model_optimizer is None else model_optimizer_version(model_optimizer),
    }


def _compare(
    judged: dict[str, Judged],
    mine: str,
    against: Sequence[str],
    names: Sequence[str],
    task: Task,
    *,
    with_score: bool = True,
) -> list[dict[str, Any]]:
    """One of QuantRT's models minus the best peer, by signal over noise, agreement and the model's metric."""
    ours = judged[mine]
    peers = {name: judged[name] for name in against if name in judged and "error" not in judged[name].row}
    if "error" in ours.row or not peers:
        return []
    rows: list[dict[str, Any] | None] = [compare_sqnr(ours, peers, name, task.sources) for name in names]
    rows.append(compare_agreement(ours, peers, task.sources))
    if task.score is not None and with_score:
        rows.append(compare_score(ours, peers, task.score))
    return [row for row in rows if row is not None]


def _beside_floats(ours: Judged, reference: Outputs, task: Task) -> dict[str, Any] | None:
    """A model's own metric minus FP32's; None without one."""
    if task.score is None or "error" in ours.row:
        return None
    wanted = reference.arrays()
    floats = Judged({"score": task.score.of(wanted)})
    floats.values = task.score.values(wanted)
    return compare_score(ours, {"FP32": floats}, task.score)


def _print(name: str, row: dict[str, Any]) -> None:
    print(f"{name}: int8 in {row['int8_library']}; ships {row['shipped']['shipped']}")
    for contender, figures in row["contenders"].items():
        print(f"  {contender:20} {figures}")
    for item in (*row["comparisons"], *row["accurate_comparisons"], *row["target_comparisons"]):
        print(
            f"  {item['metric']:18} {item['quantrt']:9.4f} vs {item['best_peer']} {item['peer']:9.4f}: "
            f"{item['difference']:+.4f} [{item['lo']:+.4f}, {item['hi']:+.4f}] {item['verdict']}"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
