# SPDX-License-Identifier: Apache-2.0
"""A compiled model run by one thread per run."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.onnxruntime_executor import OnnxRuntimeExecutor
from quantrt.runtime.openvino_executor import OpenVinoExecutor
from tests.nets import quantized, resnet, samples


def graph(target, *, is_int8: bool):
    model, data = resnet(), samples(16, 3, 16, 16)
    return (write(quantized(model, target, {"x": data})) if is_int8 else model.graph), data


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
def test_lanes_compute_the_same_bit_for_bit_several_at_once(is_int8: bool):
    """Of the shape that they are for; of another the executor does."""
    source, data = graph(OPENVINO, is_int8=is_int8)
    with closing(OpenVinoExecutor(lower_to_openvino(source), ExecOptions(threads=2))) as executor:
        parts = [{"x": data[first : first + 4]} for first in (0, 4, 8, 12)]
        wanted = [executor.run(part)["y"] for part in parts]
        lanes = executor.lanes(parts[0])
        assert lanes is not None and lanes.parallel_runs == 2
        with closing(lanes), ThreadPoolExecutor(2) as pool:
            found = [outputs["y"] for outputs in pool.map(lanes.run, parts)]
            np.testing.assert_array_equal(lanes.run({"x": data[:3]})["y"], executor.run({"x": data[:3]})["y"])
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(wanted))
        assert executor.compiled_shapes == (((4, 3, 16, 16),), ((3, 3, 16, 16),))


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
def test_onnxruntime_computes_the_same_on_one_thread(is_int8: bool):
    """Accuracy is measured by one thread per run, of what is shipped with several."""
    source, data = graph(ORT, is_int8=is_int8)
    lowered = lower_to_onnxruntime(source)
    with (
        closing(OnnxRuntimeExecutor(lowered, ExecOptions(threads=2))) as own,
        closing(OnnxRuntimeExecutor(lowered, ExecOptions(threads=2, hint="throughput"))) as lanes,
    ):
        assert (own.parallel_runs, lanes.parallel_runs) == (1, 2)
        np.testing.assert_array_equal(own.run({"x": data})["y"], lanes.run({"x": data})["y"])
