# SPDX-License-Identifier: Apache-2.0
"""Whole programs are timed in turns, once, and a gain has to be one."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.tactics.cuda import whole_programs  # noqa: E402
from quantrt.tactics.cuda.choices import Choice, Choices  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering, _references  # noqa: E402
from quantrt.tactics.cuda.timing import timing_of  # noqa: E402
from quantrt.tactics.cuda.timing_cache import TimingCache  # noqa: E402
from quantrt.tactics.cuda.whole_programs import hold_against  # noqa: E402
from tests.nets import net  # noqa: E402

X = {"x": np.arange(6, dtype=np.float32).reshape(1, 6)}
CPU = torch.device("cpu")


def tuned():
    model = net("one (float[N,6] x) => (float[N,6] y) { a = Exp(x) y = Softmax<axis = -1>(a) }", {}, opset=17)
    low = CudaLowering(model, CudaConfig(), X, gpu=gpu_named("H200"), device="cpu")
    frame = low._framed(None, "fp32")[0]
    low.close()
    rows = {region: Choice(tactic, 1.0, "timed", region) for region, tactic in _references(frame).items()}
    return frame, Choices(rows, {}, {}, TimingCache({}))


def timed_as(monkeypatch, before_us, after_us):
    times = {"before": timing_of([before_us]), "after": timing_of([after_us])}
    monkeypatch.setattr(whole_programs, "_time", lambda programs, inputs, device: times)


def test_both_run_and_what_was_timed_is_not_timed_again():
    one = tuned()
    _, cache = hold_against(one, one, X, CPU)
    (entry,) = cache.entries.values()
    assert {name: found.samples for name, found in entry.tactics.items()} == {
        "before": whole_programs.ROUNDS,
        "after": whole_programs.ROUNDS,
    }
    known = one[0], replace(one[1], cache=cache)
    assert hold_against(known, known, X, None)[1].entries == cache.entries, "without a GPU"


@pytest.mark.parametrize(("after_us", "reason"), [(99.0, ""), (99.6, "99.6 us, 100.0 us without")])
def test_half_a_percent_is_a_gain(monkeypatch, after_us, reason):
    timed_as(monkeypatch, 100.0, after_us)
    found = hold_against(tuned(), tuned(), X, CPU)[0]
    assert found == reason or (reason and found.endswith(reason))


def test_without_memory_for_both_there_is_no_gain(monkeypatch):
    def out_of_memory(programs, inputs, device):
        raise torch.OutOfMemoryError("no room for 1 GB\nmore text")

    monkeypatch.setattr(whole_programs, "_time", out_of_memory)
    reason, cache = hold_against(tuned(), tuned(), X, CPU)
    assert reason == "not timed as a whole: no room for 1 GB" and not cache.entries


def test_for_a_gpu_that_is_not_here_nothing_is_known():
    assert hold_against(tuned(), tuned(), X, None)[0] == "not timed"


def test_other_tactics_are_another_comparison(monkeypatch):
    timed_as(monkeypatch, 100.0, 50.0)
    before, (frame, choices) = tuned(), tuned()
    region, row = next(iter(choices.by_region.items()))
    other = frame, replace(choices, by_region={**choices.by_region, region: replace(row, key="another")})
    keys = {*hold_against(before, before, X, CPU)[1].entries, *hold_against(before, other, X, CPU)[1].entries}
    assert len(keys) == 2
