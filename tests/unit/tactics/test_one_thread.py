# SPDX-License-Identifier: Apache-2.0
"""Which candidates are run by one thread, and what of them is."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.runtime.executor import open_executor
from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor
from quantrt.tactics import one_thread
from quantrt.tactics.candidate import Candidate, Spec
from quantrt.tactics.one_thread import FAR_RATIO, MOST_MS, OwnThreads
from tests.nets import resnet, samples

FEED = {"x": samples(2, 3, 16, 16)}
SHAPES = ((2, 3, 16, 16),)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "usable_cores", lambda: 2)


@pytest.fixture(params=["onnxruntime", "openvino"])
def candidate(request: pytest.FixtureRequest) -> Iterator[Candidate]:
    found = opened(request.param, ExecOptions())
    with closing(found.executor):
        yield found


def opened(library: str, options: ExecOptions) -> Candidate:
    lower = {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}[library]
    model = lower(resnet().graph)
    executor = open_executor(model, options, output_names=["y"])
    executor.run(FEED)
    return Candidate(Spec(library, "int8"), model, options, executor, None)


def tell(monkeypatch: pytest.MonkeyPatch, *, is_faster: bool, all_ms: float = MOST_MS) -> None:
    """What is timed."""
    monkeypatch.setattr(one_thread, "least_ms", lambda run: all_ms)
    monkeypatch.setattr(one_thread, "is_surely_faster", lambda alone, together: is_faster)


def threads_of(executor, feed) -> int:
    outputs = executor.run(feed)
    assert list(outputs) == ["y"]
    if isinstance(executor, OnnxRuntimeExecutor):
        return _sessions_threads(executor, feed)
    variant = executor._variant(tuple(array.shape for array in feed.values()))
    return int(variant.compiled.get_property("INFERENCE_NUM_THREADS"))


def _sessions_threads(executor: OnnxRuntimeExecutor, feed) -> int:
    """Threads of the session that runs these inputs; the other one is taken away meanwhile."""
    sessions = {"_native": executor._native, "_alone": executor._alone}
    for name, session in sessions.items():
        ran = Mock(wraps=session)
        setattr(executor, name, ran)
        executor.run(feed)
        setattr(executor, name, session)
        if ran.run.called:
            return int(session.session_options.intra_op_num_threads)
    raise AssertionError("no session ran")


def test_what_one_thread_runs_faster_is_compiled_for_it_at_the_timed_shapes_alone(monkeypatch, candidate):
    wanted, others = candidate.executor.run(FEED)["y"], {"x": samples(5, 3, 16, 16)}
    all_threads = threads_of(candidate.executor, others)
    tell(monkeypatch, is_faster=True)
    found = OwnThreads().of(candidate, FEED, ["y"])
    with closing(found.executor) as executor:
        assert found.options == replace(candidate.options, one_thread_shapes=SHAPES)
        np.testing.assert_array_equal(executor.run(FEED)["y"], wanted)
        assert threads_of(executor, FEED) == 1
        assert threads_of(executor, others) == all_threads


@pytest.mark.parametrize("is_same", [True, False])
def test_openvino_compiles_again_only_where_what_was_timed_computes_other_bits(monkeypatch, is_same: bool):
    found = opened("openvino", ExecOptions())
    tell(monkeypatch, is_faster=True)
    monkeypatch.setattr(one_thread, "have_same_bits", lambda wanted, got: is_same)
    compiling = Mock(wraps=found.executor._compile)
    monkeypatch.setattr(found.executor, "_compile", compiling)
    before = found.executor._compiled(SHAPES)
    with closing(OwnThreads().of(found, FEED, ["y"]).executor) as executor:
        assert threads_of(executor, FEED) == 1
        assert compiling.call_count == (not is_same)
        assert (
            executor._compiled(SHAPES) is before
        ) == is_same  # it tells the layers; what is imported not all


@pytest.mark.parametrize(
    ("is_faster", "all_ms"),
    [(False, MOST_MS), (True, 1.01 * MOST_MS)],
    ids=["no faster", "all threads take long"],
)
def test_others_keep_all_threads(monkeypatch, candidate, is_faster: bool, all_ms: float):
    tell(monkeypatch, is_faster=is_faster, all_ms=all_ms)
    assert OwnThreads().of(candidate, FEED, ["y"]) is candidate


@pytest.mark.parametrize(("factor", "is_asked"), [(1.0, True), (1.01, False)])
def test_what_is_far_behind_another_is_not_asked(monkeypatch, candidate, factor: float, is_asked: bool):
    """On all threads it takes longer than what one thread gains."""
    first, second = 0.4 * MOST_MS, 0.4 * MOST_MS * FAR_RATIO * factor
    took, asked = iter([first, second]), []
    monkeypatch.setattr(one_thread, "least_ms", lambda run: next(took))
    monkeypatch.setattr(one_thread, "is_surely_faster", lambda alone, together: asked.append(1) or False)
    threads = OwnThreads()
    assert threads.of(candidate, FEED, ["y"]) is candidate
    assert threads.of(candidate, FEED, ["y"]) is candidate
    assert len(asked) == 1 + is_asked


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("openvino", ExecOptions(threads=2)),
        ("openvino", ExecOptions(hint="throughput")),
        ("onnxruntime", ExecOptions(threads=2)),
        ("onnxruntime", ExecOptions(hint="throughput")),
    ],
)
def test_nothing_is_timed_where_threads_are_settled(monkeypatch, library: str, options: ExecOptions):
    monkeypatch.setattr(one_thread, "least_ms", lambda *given: pytest.fail("it was timed"))
    found = opened(library, options)
    with closing(found.executor):
        assert OwnThreads().of(found, FEED, ["y"]) is found


def test_real_runs_are_timed(candidate):
    """Which is faster depends on the machine; outputs do not."""
    wanted = candidate.executor.run(FEED)["y"]
    found = OwnThreads().of(candidate, FEED, ["y"])
    with closing(found.executor):
        np.testing.assert_array_equal(found.executor.run(FEED)["y"], wanted)
