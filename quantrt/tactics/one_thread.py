# SPDX-License-Identifier: Apache-2.0
"""Small models that one thread runs faster than all: others take longer to be woken than they compute.

Codes compute in less time than floats, so each candidate in codes is asked, for the shapes that are timed
alone: of other shapes nothing is known, and all threads run them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from quantrt.runtime.executor import Executor, open_executor
from quantrt.tactics.brief_pair import is_surely_faster, least_ms
from quantrt.tactics.same_bits import have_same_bits
from quantrt.threads import usable_cores

if TYPE_CHECKING:
    from quantrt.runtime.openvino.ports import Shapes
    from quantrt.tactics.candidate import Candidate

__all__ = ["FAR_RATIO", "MOST_MS", "OwnThreads"]

MOST_MS = 0.25
"""Of a run on all threads: in what takes longer they are worth waking."""

FAR_RATIO = 1.25
"""Of the time of another: what takes longer on all threads does not win by one."""

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}


class OwnThreads:
    """Asks one candidate after another of the same inputs; not those that are far behind one before."""

    def __init__(self) -> None:
        self._fastest_ms = math.inf

    def of(
        self, candidate: Candidate, inputs: Mapping[str, np.ndarray], output_names: Sequence[str]
    ) -> Candidate:
        """The candidate, or where one thread is surely faster the same for it; its executor may be another.

        Args:
            candidate: of OpenVINO, has run these inputs.
            inputs: that are timed.
        """
        options, executor = candidate.options, candidate.executor
        is_free = options.threads is None and options.hint == "latency" and usable_cores() > 1
        shapes = _shapes(candidate, inputs) if is_free else None
        if shapes is None or not self._may_win(least_ms(partial(executor.run, inputs))):
            return candidate
        options = replace(options, one_thread_shapes=shapes)
        if candidate.spec.library == "openvino":
            return replace(candidate, options=options) if _runs_alone(executor, shapes, inputs) else candidate
        reopened = partial(open_executor, candidate.model, options, output_names=output_names)
        alone = _faster_in_onnxruntime(executor, reopened, inputs)
        if alone is None:
            return candidate
        executor.close()
        return replace(candidate, options=options, executor=alone)

    def _may_win(self, all_ms: float) -> bool:
        """Whether what takes so long on all threads is small, and not far behind what was asked before."""
        self._fastest_ms = min(self._fastest_ms, all_ms)
        return all_ms <= min(MOST_MS, FAR_RATIO * self._fastest_ms)


def _shapes(candidate: Candidate, inputs: Mapping[str, np.ndarray]) -> Shapes | None:
    """Those of the inputs that are timed; None on a GPU, and where OpenVINO has nothing for them alone."""
    executor, library = candidate.executor, candidate.spec.library
    if library == "onnxruntime":
        return tuple(tuple(inputs[spec.name].shape) for spec in executor.inputs)
    return next(iter(executor.compiled_shapes), None) if library == "openvino" else None


def _faster_in_onnxruntime(
    executor: Executor, reopened: Callable[[], Executor], inputs: Mapping[str, np.ndarray]
) -> Executor | None:
    """The executor with a session for one thread, where it runs the inputs surely faster."""
    alone = reopened()
    if is_surely_faster(partial(alone.run, inputs), partial(executor.run, inputs)):
        return alone
    alone.close()
    return None


def _runs_alone(executor: Executor, shapes: Shapes, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether one thread runs what OpenVINO compiled surely faster; from then on it does.

    What was timed goes on to be used where it computes the same, bit for bit: to compile once more takes
    most of what such a candidate takes to open. It is an engine's file that is compiled for one thread.
    """
    from quantrt.runtime.openvino.executor import OpenVinoExecutor  # heavy

    variant = executor.again(shapes, ONE_THREAD) if isinstance(executor, OpenVinoExecutor) else None
    if not isinstance(executor, OpenVinoExecutor) or variant is None:
        return False
    run = partial(executor.run_in, variant, shapes, inputs)
    if not is_surely_faster(run, partial(executor.run, inputs)):
        return False
    executor.run_alone(shapes, variant if have_same_bits(executor.run(inputs), run()) else None)
    return True
