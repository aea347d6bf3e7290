# SPDX-License-Identifier: Apache-2.0
"""A contender on the samples of a task, beside FP32 in ONNX Runtime."""

__all__ = ["TOOL_ERRORS", "Outputs", "beside_floats", "float_outputs", "judge", "reason", "session_outputs"]

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from openvino.frontend import OpConversionFailure

from benchmarks.peers.contenders import Contender
from benchmarks.tasks.paired import Judged, sqnr_db
from benchmarks.tasks.task import Task
from quantrt.errors import QuantRtError, last_line
from quantrt.reference.metrics import Error

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


class Outputs:
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


def float_outputs(task: Task) -> Outputs:
    """FP32's, in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(task.path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    outputs = Outputs(names)
    for feed in task.validation:
        outputs.add(dict(zip(names, session.run(names, feed), strict=True)))
    return outputs


def judge(contender: Contender, task: Task, reference: Outputs) -> Judged:
    """Its figures, and what is known of it; where its tool fails, or quantizes nothing, the reason alone."""
    outputs = Outputs(reference.names)
    try:
        with contender.open() as opened:
            _check_quantized(opened.facts)
            for feed in task.validation:
                outputs.add(opened.run(feed))
    except TOOL_ERRORS as error:
        print(f"{task.name}: {contender.name}: {reason(error)}", file=sys.stderr)
        return Judged({"error": reason(error)})
    judged = _against(reference, outputs)
    judged.row |= opened.facts
    wanted, got = reference.arrays(), outputs.arrays()
    if task.decisions is not None:
        judged.same = task.decisions(wanted, got)
        judged.row["agreement_ratio"] = float(np.mean(judged.same))
    if task.score is not None:
        judged.values = task.score.values(got)
        judged.row["score"] = task.score.of(got)
    return judged


def session_outputs(session: Any, task: Task) -> list[Array]:
    """Every output of an ONNX Runtime session over the validation samples, [samples, ...]."""
    parts = [session.run(None, feed) for feed in task.validation]
    return [np.concatenate([np.array(part[number]) for part in parts]) for number in range(len(parts[0]))]


def beside_floats(task: Task, wanted: list[Array], got: list[Array]) -> dict[str, Any]:
    """Figures of a model's outputs; signal over noise is of the first, None where all are FP32's."""
    error = Error()
    error.add(wanted[0], got[0])
    is_same = all(np.array_equal(a, b) for a, b in zip(wanted, got, strict=True))
    return {
        "sqnr_db": None if is_same else float(-10 * np.log10(error.noise_ratio)),
        "agreement_ratio": None if task.decisions is None else float(np.mean(task.decisions(wanted, got))),
        "score": None if task.score is None else task.score.of(got),
    }


def reason(error: Exception) -> str:
    """The last line of what a tool says."""
    return last_line(error)[:300]


def _check_quantized(facts: Mapping[str, Any]) -> None:
    """A model that is left as it is has every product in floats.

    Raises:
        RuntimeError: none is computed on codes.
    """
    if 0 < facts.get("products", 0) == facts["in_floats"]:
        raise RuntimeError(f"it quantizes nothing: none of {facts['products']} products is on codes")


def _against(reference: Outputs, outputs: Outputs) -> Judged:
    """Power of signal and noise, by output."""
    judged = Judged({})
    for name, a, b in zip(reference.names, reference.arrays(), outputs.arrays(), strict=True):
        rows_a, rows_b = (x.reshape(len(x), -1).astype(np.float64) for x in (a, b))
        judged.signal[name] = np.square(rows_a).sum(1)
        judged.noise[name] = np.square(rows_a - rows_b).sum(1)
    judged.row["sqnr_db"] = {name: sqnr_db(judged, name) for name in reference.names}
    return judged
