# SPDX-License-Identifier: Apache-2.0
"""A compiled model again: run by one thread per run, or watched."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import openvino
import pytest

from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from quantrt.runtime.openvino.watch import WatchedOpenVino, layers_of
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


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
def test_an_open_executor_is_watched_without_being_compiled_again(
    monkeypatch: pytest.MonkeyPatch, is_int8: bool
):
    """Its layers are those of a model that was compiled to be watched, and each has a time."""
    source, data = graph(OPENVINO, is_int8=is_int8)
    lowered, feed = lower_to_openvino(source), {"x": data[:2]}
    with closing(OpenVinoExecutor(lowered, ExecOptions(threads=2))) as executor:
        executor.run(feed)
        with closing(WatchedOpenVino(lowered, ExecOptions(threads=2))) as compiled:
            names, _, _ = compiled.watch(feed, runs=2, warmup_runs=1)
        monkeypatch.setattr(openvino.Core, "compile_model", lambda *given: pytest.fail("it was compiled"))
        with closing(WatchedOpenVino(lowered, ExecOptions(threads=2), beside=executor)) as watched:
            found, times_ms, run_ms = watched.watch(feed, runs=5, warmup_runs=1)
            shapes = watched.input_shapes({"x": feed["x"].shape})
            assert shapes is not None
            layers = [name for name, _ in layers_of(watched.runtime_model(shapes), watched.source_model())]
        assert found == names == tuple(layers) and len(run_ms) == 5
        assert 0.0 < sum(times_ms) <= sum(run_ms)
