# SPDX-License-Identifier: Apache-2.0
"""Attention over few keys: which engine is taken, in codes or with it in floats."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.quantize.attention import attention_products
from quantrt.quantize.fit import GIVEN_SCALES, Fitted, fit, observe_reference
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.tactics import short_attention
from quantrt.tactics.candidate import Candidate, Rejected, Spec
from quantrt.tactics.short_attention import MOST_KEYS, MOST_MS, ShortAttention, with_float_attention
from tests.nets import net, observe, samples, weights

CONFIG = QuantizeConfig()
SPEC = Spec("openvino", "int8")
SHAPES = {"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8)}

TEXT = """net (float[N,{tokens},8] x) => (float[N,{tokens},8] y) {{
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  t = Transpose<perm=[0,2,1]>(k)
  s = MatMul(q, t)
  p = Softmax(s)
  o = MatMul(p, v)
  y = MatMul(o, wo)
}}"""


def fitted(tokens: int = 16) -> Fitted:
    model, inputs = net(TEXT.format(tokens=tokens), weights(SHAPES)), {"x": samples(4, tokens, 8)}
    reference = observe_reference(model, [inputs], CONFIG)
    stats = observe(model, (OPENVINO,), inputs)
    return fit(model, stats, OPENVINO, reference, config=CONFIG, calibration=CalibrationConfig())


def in_codes(found: Fitted) -> set[str]:
    return {row.node for row in found.model.placement.decisions if row.is_int8 and row.op_type == "MatMul"}


def test_the_products_of_short_attention_are_floats_and_others_stay_codes():
    full = fitted()
    assert full.floats is not None
    found = with_float_attention(full, CONFIG)
    assert found is not None
    assert in_codes(full) - in_codes(found) == attention_products(full.floats.graph)
    assert len(in_codes(found)) == 4


def test_attention_over_more_keys_stays():
    assert with_float_attention(fitted(MOST_KEYS), CONFIG) is not None
    assert with_float_attention(fitted(MOST_KEYS + 1), CONFIG) is None


def test_what_a_user_settled_stays():
    full = fitted()
    assert with_float_attention(full, QuantizeConfig(quantization_level="4")) is None
    assert with_float_attention(replace(full, method=GIVEN_SCALES), CONFIG) is None
    assert with_float_attention(replace(full, floats=None), CONFIG) is None


@dataclass
class Opened:
    """An executor that only knows whether it is open."""

    is_open: bool = True

    def run(self, inputs: dict[str, np.ndarray]) -> None:
        assert self.is_open

    def close(self) -> None:
        self.is_open = False


def open_one(model: Fitted) -> Candidate:
    return Candidate(SPEC, LibraryModel("openvino", b"", {}), ExecOptions(), Opened(), model)


def chosen(monkeypatch: pytest.MonkeyPatch, full: Fitted, *, gains: bool, ms: float = MOST_MS):
    """Two candidates that are opened of one model, with what is timed told."""
    monkeypatch.setattr(short_attention, "least_ms", lambda run: ms)
    monkeypatch.setattr(short_attention, "is_surely_faster", lambda run, other: gains)
    opened: list[Candidate] = []

    def opening(model: Fitted) -> Candidate:
        opened.append(open_one(model))
        return opened[-1]

    attention = ShortAttention({}, CONFIG)
    found = [attention.open(full, opening) for _ in range(2)]
    assert [one.executor.is_open for one in found] == [True, True]
    assert sum(one.executor.is_open for one in opened) == 2
    return [in_codes(one.fitted) for one in found], len(opened)


def test_floats_are_taken_where_they_are_faster_for_all_engines_of_a_model(monkeypatch):
    full = fitted()
    attention = attention_products(full.floats.graph)
    assert chosen(monkeypatch, full, gains=True) == ([in_codes(full) - attention] * 2, 3)


def test_codes_stay_where_they_are_no_slower(monkeypatch):
    full = fitted()
    assert chosen(monkeypatch, full, gains=False) == ([in_codes(full)] * 2, 3)


def test_a_large_model_is_opened_once(monkeypatch):
    full = fitted()
    assert chosen(monkeypatch, full, gains=True, ms=1.01 * MOST_MS) == ([in_codes(full)] * 2, 2)


def test_what_the_library_refuses_is_told():
    refused = Rejected(SPEC, "no")
    assert ShortAttention({}, CONFIG).open(fitted(), lambda model: refused) is refused
