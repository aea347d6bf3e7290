# SPDX-License-Identifier: Apache-2.0
"""What runs a candidate on every sample: nobody times it, so each run is made by one thread.

Threads that share a run wait for each other, and spin meanwhile. With one of its own a sample takes less of
the processor. As many run at once as there are cores.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from quantrt.errors import QuantRtError
from quantrt.runtime.executor import Executor, Lanes, LanesBeside
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.same_bits import Arrays, have_same_bits
from quantrt.threads import usable_cores

__all__ = ["MOST_BYTES", "lanes_of"]

log = logging.getLogger(__name__)

MOST_BYTES = 256 << 20
"""Of a model that is opened once more for it."""


def lanes_of(
    candidate: Candidate, names: Sequence[str], inputs: Arrays, stack: ExitStack
) -> Executor | Lanes:
    """The kernels of a candidate, run by one thread each.

    Where they have other outputs than the candidate, by a single bit, it is the candidate itself.

    Args:
        names: of the model's outputs.
        inputs: of a first run, which both make.
        stack: closes what is opened for it.
    """
    executor, threads = candidate.executor, candidate.options.threads or usable_cores()
    is_alone = candidate.spec.library == "cuda" or threads == 1 or executor.parallel_runs > 1
    if is_alone or candidate.model.size_bytes > MOST_BYTES:
        return executor
    lanes = _opened(candidate, names, inputs)
    if lanes is None:
        return executor
    stack.callback(lanes.close)
    if have_same_bits(executor.run(inputs), lanes.run(inputs)):
        return lanes
    log.info("%s computes other bits on one thread: its own threads run the samples", candidate.spec.name)
    return executor


def _opened(candidate: Candidate, names: Sequence[str], inputs: Arrays) -> Executor | Lanes | None:
    """The same model for one thread per run; None where there is nothing of the kind."""
    try:
        if candidate.spec.library == "onnxruntime":
            from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor  # heavy

            options = replace(candidate.options, hint="throughput")
            return OnnxRuntimeExecutor(candidate.model, options, output_names=names)
        return candidate.executor.lanes(inputs) if isinstance(candidate.executor, LanesBeside) else None
    except QuantRtError as error:
        log.info("%s is not opened for samples: %s", candidate.spec.name, error.message)
        return None
