# SPDX-License-Identifier: Apache-2.0
"""Builds whose attention may be in 8 bits; a CPU stands in for the GPU, a made-up kernel for its codes."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import Budget, BuildConfig, CalibrationConfig, ConstraintConfig, DeviceConfig
from quantrt.errors import DeviceError
from quantrt.gpu import GpuFacts
from quantrt.model.model import Model
from quantrt.quantize.fit.fit import GIVEN_SCALES, OWN_SCALES, Fitted
from quantrt.quantize.targets.cuda import CUDA
from quantrt.regions.region import Attention
from quantrt.runtime.engine import Engine
from quantrt.tactics.candidates import Opener, Spec
from quantrt.tactics.candidates import Rejected as OpenerRejected
from quantrt.tactics.cuda import listing, lower
from quantrt.tactics.cuda.candidates import list_tactics, reference_tactic
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.made_up_times import made_up_times
from tests.nets import net, quantized, samples, weights

NET = """attends (float[N,12,16] x) => (float[N,12,16] y)
  <int64[4] split = {-1, 12, 4, 4}, int64[3] joined = {-1, 12, 16}, float half = {0.5}> {
  q0 = MatMul(x, wq) q1 = Reshape(q0, split) q = Transpose<perm=[0,2,1,3]>(q1)
  k0 = MatMul(x, wk) k1 = Reshape(k0, split) k = Transpose<perm=[0,2,3,1]>(k1)
  v0 = MatMul(x, wv) v1 = Reshape(v0, split) v = Transpose<perm=[0,2,1,3]>(v1)
  s0 = MatMul(q, k) s1 = Mul(s0, half) a = Softmax<axis=-1>(s1)
  c0 = MatMul(a, v) c1 = Transpose<perm=[0,2,1,3]>(c0) c = Reshape(c1, joined)
  y = MatMul(c, wo)
}"""
PRODUCTS = ("MatMul_9", "MatMul_12")
"""Of attention, as nodes are called."""

INPUTS = {"x": samples(16, 12, 16)}
CODED = "attention coded made up"
SLANT = 1.1
"""Of the made-up kernel's scale: as far off as codes may be, and farther than the int8 products."""

CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
    budget=Budget(metric="sqnr", max_drop_ratio=1.0),
)


def tactics_with_codes(
    workload: Workload, gpu: GpuFacts, *, allows_coded_attention: bool = False
) -> list[Tactic | Rejected]:
    """What there is; where attention may make codes, a kernel first that is as coarse."""
    listed = list_tactics(workload, gpu, allows_coded_attention=allows_coded_attention)
    if not (allows_coded_attention and isinstance(workload.formula, Attention)):
        return listed
    slanted = replace(workload.formula, scale=SLANT * workload.formula.scale)
    drafts = reference_tactic(replace(workload, formula=slanted)).drafts
    return [Tactic("made up", CODED, drafts), *listed]


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    with stand_in_for_gpu(), made_up_times(), patch.object(listing, "list_tactics", tactics_with_codes):
        yield


@pytest.fixture
def model() -> Model:
    arrays = weights(dict.fromkeys(("wq", "wk", "wv", "wo"), (16, 16)))
    return net(NET, arrays)


def made(model: Model, config: BuildConfig) -> Engine:
    return build(model, config=config, calibration=INPUTS, validation=INPUTS)


def at(level: str, **options: tuple[str, ...]) -> BuildConfig:
    return replace(CONFIG, quantize=replace(CONFIG.quantize, quantization_level=level, **options))


def attention_of(engine: Engine) -> set[tuple[str, bool]]:
    """Precision of both products, and whether their kernel makes codes."""
    rows = [row for row in engine.plan.layers if row.name in PRODUCTS]
    assert len(rows) == 2
    return {(row.precision, CODED in row.reason) for row in rows}


@pytest.mark.parametrize("level", ["2.5", "3", "4", "auto"])
def test_attention_is_in_codes_at_the_levels_for_it(model: Model, level: str):
    with made(model, at(level)) as engine:
        is_coded = level in ("4", "auto")
        assert attention_of(engine) == {("int8" if is_coded else "fp16", is_coded)}
        assert not [note for note in engine.report["notes"] if "attention is in floats" in note]


@pytest.mark.parametrize("options", [{"exclude": (PRODUCTS[1],)}, {"only": ("MatMul_0",)}])
def test_attention_stays_float_where_a_product_of_it_is_to(model: Model, options: dict[str, tuple[str, ...]]):
    with made(model, at("auto", **options)) as engine:
        assert engine.precision == "int8"
        assert attention_of(engine) == {("fp16", False)}


def test_attention_that_has_to_be_fp16_is(model: Model):
    rules = ConstraintConfig(layer_precisions=(f"{PRODUCTS[0]}:fp16",))
    with made(model, replace(CONFIG, constraints=rules)) as engine:
        assert attention_of(engine) == {("fp16", False)}


def test_codes_of_attention_that_are_outside_the_budget_are_taken_back(model: Model):
    budget = Budget(metric="sqnr", max_drop_ratio=1e-3)
    with made(model, replace(CONFIG, budget=budget)) as engine:
        report = engine.report
        assert attention_of(engine) == {("fp16", False)}
    assert report["verdict"]["shipped"] == "cuda int8+fp16"
    rows = {row["name"]: row for row in report["candidates"]}
    assert rows["cuda int8+fp16"]["accuracy"]["drop_ratio"] < 1e-3
    note = "cuda int8+fp16: attention is in floats: with it in 8 bits this was outside the budget"
    assert note in report["notes"]


def test_a_mix_keeps_attention_float(model: Model):
    budget = Budget(metric="sqnr", max_drop_ratio=3e-4)
    with made(model, replace(CONFIG, budget=budget)) as engine:
        assert engine.report["verdict"]["shipped"] == "cuda int8+fp16 mixed"
        assert attention_of(engine) == {("fp16", False)}


@pytest.mark.parametrize(("method", "floats"), [("minmax", ()), (GIVEN_SCALES, None), (OWN_SCALES, None)])
def test_given_scales_leave_attention_float(model: Model, method: str, floats: tuple[str, ...] | None):
    seen = []

    class Lowering:
        def __init__(self, *_: object, **__: object) -> None: ...

        def lower(self, quantized: object, precision: str, float_attention: object) -> object:
            seen.append(float_attention if float_attention is None else tuple(float_attention))
            raise DeviceError("no GPU")

    fitted = Fitted(quantized(model, CUDA, INPUTS), method, {}, floats=model.graph)
    with patch.object(lower, "CudaLowering", Lowering):
        found = Opener(model, CONFIG, INPUTS).open(Spec("cuda", "int8", "fp16"), fitted)
    assert isinstance(found, OpenerRejected) and found.reason == "no GPU"
    assert seen == [floats]
