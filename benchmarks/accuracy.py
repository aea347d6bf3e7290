# SPDX-License-Identifier: Apache-2.0
"""Accuracy of int8 on real models, against the peers: `python -m benchmarks.accuracy MODELS [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled (only all-MiniLM-L6-v2 is used); the other models and all
data come from the data folder. Everything is calibrated on the same samples and judged on others: per output
signal over quantization noise against FP32 in ONNX Runtime, how often decisions agree with FP32's, and the
model's own metric where there are labels. QuantRT's int8 engine is the faster of its int8 candidates, as
`quantrt.build` would take it without a bound on accuracy. A second run adds its models to the results.
"""

__all__ = ["measure_task"]

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from openvino.frontend import OpConversionFailure

from benchmarks.accuracy_page import accuracy_page
from benchmarks.contenders import Contender, Run, make_quantrt, peer_contenders
from benchmarks.real_tasks import TASK_NAMES, Task, load_task
from benchmarks.record import commit, load_results, write_results
from quantrt.errors import QuantRtError

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-cpu.json"
SAMPLES = 2000
RESAMPLES = 1000
PEERS = ("ort default", "nncf default", "nncf read_model")
"""The peers with their defaults, the best of which is the bar."""
INTERVAL = (0.025, 0.975)

Array = npt.NDArray[Any]

TOOL_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    QuantRtError,
    OpConversionFailure,
)
"""What quantizers raise on a model that they cannot handle: then the row says so."""


def main() -> None:
    args = _parser().parse_args()
    results = load_results(args.out)
    for name in args.names:
        row = measure_task(load_task(name, args.models, args.samples))
        results["models"][name] = row
        order = [task for task in TASK_NAMES if task in results["models"]]
        results["models"] = {task: results["models"][task] for task in order}
        write_results(args.out, results, accuracy_page(results))
        _print(name, row)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Accuracy of int8 on real models, QuantRT and its peers.")
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("names", nargs="*", default=TASK_NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="validation samples at most")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; tables go beside it")
    return parser


def measure_task(task: Task) -> dict[str, Any]:
    """Every contender on one task, and QuantRT's int8 engine against the best peer."""
    import onnxruntime

    session = onnxruntime.InferenceSession(task.path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    reference = _Outputs(names)
    for feed in task.validation:
        reference.add(dict(zip(names, session.run(names, feed), strict=True)))
    ours = make_quantrt(task)
    judged = {
        contender.name: _judge(contender, task, reference)
        for contender in (*ours.contenders, *peer_contenders(task))
    }
    judged["quantrt int8"] = judged[f"quantrt {ours.int8}"]
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": reference.samples,
        "score_name": task.score_name,
        "float_score": None if task.score is None else task.score(reference.arrays()),
        "note": task.note,
        "int8_library": ours.int8,
        "range_methods": ours.methods,
        "shipped": ours.engine.report["verdict"],
        "contenders": {name: item.row for name, item in judged.items()},
        "comparisons": _compare(judged, names),
    }


class _Outputs:
    """Outputs of a model over a task: per sample for statistics, and joined."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.parts: dict[str, list[Array]] = {name: [] for name in names}
        self.samples = 0

    def add(self, outputs: Any) -> None:
        """One batch; the first axis of its first output counts samples."""
        count = len(outputs[self.names[0]])
        for name in self.names:
            array = np.array(outputs[name])
            self.parts[name].append(array if len(array) == count else array.reshape(count, -1))
        self.samples += count

    def arrays(self) -> list[Array]:
        """All batches of each output, [samples, ...]."""
        return [np.concatenate(self.parts[name]) for name in self.names]


class _Judged:
    """One contender's figures; `noise`, `signal` f64 [samples] by output and `same` f64 [samples] or None."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.noise: dict[str, Array] = {}
        self.signal: dict[str, Array] = {}
        self.same: Array | None = None


def _judge(contender: Contender, task: Task, reference: _Outputs) -> _Judged:
    outputs = _Outputs(reference.names)
    try:
        with contender.open() as run:
            _run_all(run, task, outputs)
    except TOOL_ERRORS as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        print(f"{task.name}: {contender.name}: {reason}", file=sys.stderr)
        return _Judged({"error": reason[:300]})
    wanted, got = reference.arrays(), outputs.arrays()
    judged = _Judged({})
    for name, a, b in zip(reference.names, wanted, got, strict=True):
        rows_a, rows_b = (x.reshape(len(x), -1).astype(np.float64) for x in (a, b))
        judged.signal[name] = np.square(rows_a).sum(1)
        judged.noise[name] = np.square(rows_a - rows_b).sum(1)
    judged.row["sqnr_db"] = {name: _sqnr_db(judged, name, slice(None)) for name in reference.names}
    if task.decisions is not None:
        judged.same = task.decisions(wanted, got)
        judged.row["agreement_ratio"] = float(np.mean(judged.same))
    if task.score is not None:
        judged.row["score"] = task.score(got)
    return judged


def _run_all(run: Run, task: Task, outputs: _Outputs) -> None:
    for feed in task.validation:
        outputs.add(run(feed))


def _sqnr_db(judged: _Judged, name: str, rows: Any) -> float:
    noise = judged.noise[name][rows].sum()
    return float(10 * np.log10(judged.signal[name][rows].sum() / noise)) if noise > 0 else 999.0


def _compare(judged: dict[str, _Judged], names: Sequence[str]) -> list[dict[str, Any]]:
    """QuantRT's int8 engine minus the best peer, with bootstrap intervals over samples."""
    ours = judged["quantrt int8"]
    peers = {name: judged[name] for name in PEERS if "error" not in judged[name].row}
    if "error" in ours.row or not peers:
        return []
    count = len(ours.noise[names[0]])
    draws = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    rows = []
    for name in names:
        best = max(peers, key=lambda peer: peers[peer].row["sqnr_db"][name])
        differences = [_sqnr_db(ours, name, d) - _sqnr_db(peers[best], name, d) for d in draws]
        here, there = ours.row["sqnr_db"][name], peers[best].row["sqnr_db"][name]
        rows.append(_comparison(f"SQNR {name} dB", best, here, there, differences))
    if ours.same is not None:
        best = max(peers, key=lambda peer: peers[peer].row["agreement_ratio"])
        other = peers[best].same
        if other is not None:
            differences = [float(np.mean(ours.same[d] - other[d])) for d in draws]
            here, there = ours.row["agreement_ratio"], peers[best].row["agreement_ratio"]
            rows.append(_comparison("agreement", best, here, there, differences))
    return rows


def _comparison(
    metric: str, peer: str, here: float, there: float, differences: Sequence[float]
) -> dict[str, Any]:
    lo, hi = (float(np.quantile(differences, q)) for q in INTERVAL)
    verdict = "better" if lo > 0 else "worse" if hi < 0 else "same"
    return {
        "metric": metric,
        "quantrt": here,
        "best_peer": peer,
        "peer": there,
        "difference": here - there,
        "lo": lo,
        "hi": hi,
        "verdict": verdict,
    }


def _print(name: str, row: dict[str, Any]) -> None:
    print(f"{name}: int8 in {row['int8_library']}; ships {row['shipped']['shipped']}")
    for contender, figures in row["contenders"].items():
        print(f"  {contender:20} {figures}")
    for item in row["comparisons"]:
        print(
            f"  {item['metric']:18} {item['quantrt']:9.4f} vs {item['best_peer']} {item['peer']:9.4f}: "
            f"{item['difference']:+.4f} [{item['lo']:+.4f}, {item['hi']:+.4f}] {item['verdict']}"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
