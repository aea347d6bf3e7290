# SPDX-License-Identifier: Apache-2.0
"""Small models that one thread runs faster than all: others take longer to be woken than they compute.

ResNet-8 in int8, one image on an AMD EPYC of 2 cores, OpenVINO 2026.4: 0.071 ms on one thread, 0.077 on two;
in FP32, which computes more, 0.14 and 0.11. So each candidate in codes is asked, for the shapes that are
timed alone: of other shapes nothing is known, and all threads run them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from quantrt.runtime.executor import open_executor
from quantrt.tactics.brief_pair import is_surely_faster, least_ms
from quantrt.threads import usable_cores

if TYPE_CHECKING:
    from quantrt.runtime.openvino_executor import OpenVinoExecutor, Shapes
    from quantrt.tactics.candidate import Candidate

__all__ = ["MOST_MS", "with_its_threads"]

MOST_MS = 0.25
"""Of a run on all threads: in what takes longer they are worth waking. ResNet-56 in int8 takes 0.42 ms on two
threads and 0.47 on one."""

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}


def with_its_threads(
    candidate: Candidate, inputs: Mapping[str, np.ndarray], output_names: Sequence[str]
) -> Candidate:
    """The candidate, or where one thread is surely faster the same for it, and the candidate is closed.

    Args:
        candidate: has run these inputs.
        inputs: that are timed.
    """
    options = candidate.options
    is_free = options.threads is None and options.hint == "latency" and usable_cores() > 1
    if candidate.spec.library != "openvino" or not is_free:
        return candidate
    from quantrt.runtime.openvino_executor import OpenVinoExecutor  # heavy

    executor = candidate.executor
    if not isinstance(executor, OpenVinoExecutor) or not executor.compiled_shapes:
        return candidate
    shapes = executor.compiled_shapes[0]
    if least_ms(partial(executor.run, inputs)) > MOST_MS:
        return candidate
    if not _is_faster_alone(executor, shapes, inputs):
        return candidate
    options = replace(options, one_thread_shapes=shapes)
    alone = open_executor(candidate.model, options, output_names=output_names)
    alone.run(inputs)  # compiles
    executor.close()
    return replace(candidate, options=options, executor=alone)


def _is_faster_alone(executor: OpenVinoExecutor, shapes: Shapes, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether one thread runs what is compiled surely faster than all."""
    variant = executor.again(shapes, ONE_THREAD)
    return variant is not None and is_surely_faster(
        partial(executor.run_in, variant, shapes, inputs), partial(executor.run, inputs)
    )
