# SPDX-License-Identifier: Apache-2.0
"""Which norms are folded into the products behind them, what is computed then, and when it is taken."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.regions.region import Gemm, NormedGemm  # noqa: E402
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # noqa: E402
from quantrt.tactics.cuda import fold_norms  # noqa: E402
from quantrt.tactics.cuda.candidates import list_tactics, reference_tactic  # noqa: E402
from quantrt.tactics.cuda.choices import Choice, Choices  # noqa: E402
from quantrt.tactics.cuda.fold_norms import find_folds  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering, _by_reference  # noqa: E402
from quantrt.tactics.cuda.tactic import Tactic  # noqa: E402
from quantrt.tactics.cuda.timing_cache import TimingCache  # noqa: E402
from quantrt.tactics.cuda.trace import trace  # noqa: E402
from tests.nets import net, weights  # noqa: E402

H200 = gpu_named("H200")
S, C, F = 7, 64, 48
NORM = "n = LayerNormalization<axis = -1, epsilon = 1e-6>(x, g, b) "
TWO = NORM + "p = MatMul(n, w) y = Add(p, bias) z = MatMul(n, v)"
RMS = (
    "square = Mul(x, x) mean = ReduceMean<axes = [-1]>(square) more = Add(mean, eps) root = Sqrt(more)"
    " unit = Div(x, root) n = Mul(unit, g) p = MatMul(n, w) y = Add(p, bias) z = MatMul(n, v)"
)


def framed(body, *, tokens=S, outputs="float[1,S,48] y, float[1,S,48] z", gpu=H200, coded=()):
    shapes = {"g": (C,), "b": (C,), "w": (C, F), "v": (C, F), "bias": (F,)}
    constants = weights(shapes) | {"eps": np.float32(1e-5)}
    used = {name: array for name, array in constants.items() if name in body}
    model = net(f"block (float[1,S,{C}] x) => ({outputs}) {{ {body} }}", used, opset=17)
    x = np.random.default_rng(0).standard_normal((1, tokens, C)).astype(np.float32) + 0.5
    low = CudaLowering(model, CudaConfig(), {"x": x}, gpu=gpu, device="cpu")
    frame = low._framed(None, "fp16")[0]
    facts = trace(_by_reference(frame), {"x": x}, torch.device("cpu")).facts
    low.close()
    return frame, find_folds(frame, facts, gpu, coded), x


def run(frame, x):
    program = _by_reference(frame)
    return CudaExecutor(program, *specs_of(program), device="cpu").run({"x": x})


@pytest.fixture(autouse=True)
def whole_programs(monkeypatch):
    """Reasons why whole programs are not faster, one for each that is asked for; none is left in the end."""
    reasons = [""]

    def hold_against(before, after, inputs, device):
        return reasons.pop(0), before[1].cache

    monkeypatch.setattr(fold_norms, "hold_against", hold_against)
    return reasons


def folded(frame, choices, folds):
    return fold_norms.fold_norms(frame, choices, folds, {}, None)


def choices_of(frame, folds, *, norm_us, apart_us, together_us, origin="timed"):
    """As if the norm, each product and each folded product had taken so long."""
    times = {item.region: apart_us for item in frame.items if item.lowered is not None}
    times |= {fold.norm.region: norm_us for fold in folds}
    times |= {workload.region: together_us for fold in folds for workload in fold.workloads}
    tactic = Tactic("triton", "any", ())
    rows = {region: Choice(tactic, us, origin, region) for region, us in times.items()}
    return Choices(rows, {}, {}, TimingCache({}))


@pytest.mark.parametrize("body", [TWO, RMS], ids=["layer norm", "rms norm"])
def test_folded_products_give_what_norm_and_products_give(body):
    frame, folds, x = framed(body)
    (fold,) = folds
    assert [item.lowered.formula.is_centred for item in fold.folded] == [body == TWO] * 2
    choices = choices_of(frame, folds, norm_us=2.0, apart_us=4.0, together_us=4.5)
    fused, taken, mismatches = folded(frame, choices, folds)
    assert not mismatches
    formulas = [item.lowered.formula for item in fused.items if item.lowered is not None]
    assert [type(formula) for formula in formulas].count(NormedGemm) == 2
    assert not any(isinstance(formula, Gemm) for formula in formulas)
    assert set(taken.by_region) == {item.region for item in fused.items if item.lowered is not None}
    want, got = run(frame, x), run(fused, x)
    for name in want:  # fp16 rounds the norm there and its weights here, 2^-11 of each, and the results
        np.testing.assert_allclose(got[name], want[name], rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"together_us": 5.0}, "slower on this GPU: 10.0 us together, 10.0 us apart"),
        ({"origin": "estimated"}, "not timed"),
    ],
)
def test_what_is_not_measured_faster_stays_apart(times, reason):
    frame, folds, _ = framed(TWO)
    given = {"norm_us": 2.0, "apart_us": 4.0, "together_us": 4.5} | times
    fused, taken, mismatches = folded(frame, choices_of(frame, folds, **given), folds)
    assert fused.items == frame.items
    assert set(taken.by_region) == {item.region for item in frame.items if item.lowered is not None}
    assert [(row.pattern, row.reason, row.node) for row in mismatches] == [
        ("norm in product", reason, folds[0].norm.region)
    ]


def test_a_program_that_gains_nothing_is_not_taken(whole_programs):
    frame, folds, _ = framed(TWO)
    whole_programs[:] = ["no gain"]
    choices = choices_of(frame, folds, norm_us=2.0, apart_us=4.0, together_us=4.5)
    same, taken, mismatches = folded(frame, choices, folds)
    assert same.items == frame.items and [row.reason for row in mismatches] == ["no gain"]
    assert set(taken.by_region) == {item.region for item in frame.items if item.lowered is not None}


def test_the_reference_is_no_kernel():
    frame, folds, _ = framed(TWO)
    choices = choices_of(frame, folds, norm_us=2.0, apart_us=4.0, together_us=4.5)
    workload = folds[0].workloads[0]
    slow = {workload.region: Choice(reference_tactic(workload), 1.0, "timed", "key")}
    choices = replace(choices, by_region={**choices.by_region, **slow})
    assert "no kernel" in folded(frame, choices, folds)[2][0].reason


OTHERS = {
    "the norm is an output": {"body": TWO, "outputs": "float[1,S,48] y, float[1,S,48] z, float[1,S,64] n"},
    "a sum reads it too": {
        "body": TWO + " t = Add(n, x)",
        "outputs": "float[1,S,48] y, float[1,S,48] z, float[1,S,64] t",
    },
    "a weight is codes": {"body": TWO, "coded": None},
    "many rows": {"body": TWO, "tokens": 1025},
    "another GPU": {"body": TWO, "gpu": gpu_named("A100")},
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_folded(case):
    given = dict(OTHERS[case])
    if "coded" in given:
        frame, folds, _ = framed(TWO)
        given["coded"] = {folds[0].readers[1].lowered.formula.w}
    assert framed(**given)[1] == []


def test_equal_layers_are_timed_once():
    _, folds, _ = framed(TWO)
    structures = [workload.structure() for workload in folds[0].workloads]
    assert structures[0] == structures[1], "a bias, or the norm's shift in its place"


def test_tactics_of_a_folded_product():
    _, folds, _ = framed(TWO, tokens=197)
    tactics = list_tactics(folds[0].workloads[0], H200)
    assert [tactic.name for tactic in tactics][-1] == "reference"
    assert all(tactic.name.startswith("few rows 64x") for tactic in tactics[:-1])
    assert all(tactic.name.endswith(" normed") for tactic in tactics[:-1])
    weight, sums = tactics[0].drafts[0].constants[:2]
    np.testing.assert_allclose(sums.make(), weight.make().astype(np.float64).sum(1), rtol=1e-6)
