# SPDX-License-Identifier: Apache-2.0
"""Attention with a producer and consumers: its own source in Python, at random interleavings."""

import math
import types

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import DeviceError
from quantrt.kernels.attention_hopper import triton_kernel
from quantrt.kernels.attention_hopper.spec import HopperAttention, kernel_of
from quantrt.kernels.jit import attention_fragments as fragments
from quantrt.kernels.jit import attention_weights as weights
from quantrt.kernels.jit import ring
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from tests.kernels.attention.test_attention_compiled import bert
from tests.kernels.gluon_on_cpu import Descriptor, Pointer, Rules, Scalar, altered, block, run_program
from tests.kernels.value_orders import columns_in_order, keys_in_order

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # of what is not taken

ROWS = 64
BLOCK_D = 16
FP8 = ml_dtypes.float8_e4m3fn


def attended(
    sizes,
    *,
    scores="int8",
    values="fp8",
    groups=1,
    block_n=32,
    columns=BLOCK_D,
    stages=3,
    is_causal=False,
    mask=None,
    visible=None,
    programs=2,
    seed=0,
    rounds_weights=False,
    lines=0,
    turns=False,
    module=triton_kernel,
):
    """softmax(q @ k^T + mask) @ v by the kernel, and by numpy in float64; "floats" are float32.

    Args:
        mask: its shape.
        visible: keys of the first sample that it does not hide; all of it is 0 before them, or behind them
            where the number is negative.
    """
    B, H, S, T = sizes
    G = H // groups
    rng = np.random.default_rng(seed)
    blocks = -(-T // block_n)
    has_codes = scores == "int8"
    kind = np.int8 if has_codes else np.float32
    padded = np.zeros((B, H, S, BLOCK_D)), np.zeros((B, G, T, BLOCK_D)), np.zeros((B, G, T, BLOCK_D))
    q, k, v = padded
    q[..., :columns] = (
        rng.integers(-127, 128, (B, H, S, columns)) if has_codes else rng.standard_normal((B, H, S, columns))
    )
    k[..., :columns] = (
        rng.integers(-127, 128, (B, G, T, columns)) if has_codes else rng.standard_normal((B, G, T, columns))
    )
    v[..., :columns] = rng.integers(-8, 9, (B, G, T, columns)) / 8
    q_scale = (rng.random((B, H, S)) + 0.5).astype(np.float32) * np.float32(1e-3 if has_codes else 1)
    k_scale = (rng.random((B, G, blocks)) + 0.5).astype(np.float32) * np.float32(0.2)
    v_scale = (10 ** rng.uniform(-2, 2, (B, G, blocks))).astype(np.float32)
    width = -(-T // 16) * 16
    turned = np.zeros((B, G, BLOCK_D, -(-T // block_n) * block_n), np.float32)
    turned[..., :T] = v.swapaxes(2, 3)
    turned = turned[:, :, columns_in_order(BLOCK_D)][..., keys_in_order(turned.shape[3])][..., :width]
    v_kind = FP8 if rounds_weights else np.float32

    def codes_of(x, scale, shift, lines):
        return block(np.exp2((x.astype(np.float64) * scale + shift).astype(np.float32)).astype(v_kind))

    def packed_codes_of(x, scale, shift):
        sums = x.astype(np.float64) * 2**64 - weights.MAGIC_FLOAT.value
        return codes_of(block(sums), scale, shift, 2)

    if values == "fp8":
        v_desc = Descriptor(np.ascontiguousarray(turned).astype(v_kind), (1, 1, BLOCK_D, block_n), bits=8)
    else:
        v_desc = Descriptor(v.astype(np.float32), (1, 1, block_n, BLOCK_D))
    given = np.zeros((1, 1, 1, 1), np.float32)
    if mask is not None:
        given = (3 * rng.standard_normal(mask)).astype(np.float32)
        given[rng.random(mask) < 0.3] = -np.inf
        given[..., rng.integers(T)] = 0
    if visible is not None:
        given[0] = 0
        given[0, ..., visible:] = -np.inf
        if visible < 0:
            given[0] = given[0, ..., ::-1]
    bits = 8 if has_codes else 32
    y = np.full(B * H * S * columns, -77777, np.float32)
    scale = 0.7
    arguments = (
        Descriptor(q.astype(kind), (1, 1, ROWS, BLOCK_D), bits),
        Descriptor(k.astype(kind), (1, 1, block_n, BLOCK_D), bits),
        v_desc,
        Descriptor(given, (1, 1, 1, block_n), 16),
        *(Pointer(array.reshape(-1)) for array in (q_scale, k_scale, v_scale)),
        (Pointer(y),),
        (),
        *map(Scalar, (B, H, S, T, given.shape[0] > 1, given.shape[1] > 1)),
        *map(Scalar, (S * H * columns, columns, H * columns)),
        scale,
        1,
        16,
        groups,
        columns,
        "none" if mask is None else "added",
        False,
        is_causal,
        (),
        (),
        (0,),
        block_n,
        BLOCK_D,
        stages,
        lines,
        turns,
    )
    for program in range(programs):
        run_program(
            module,
            "attention_hopper",
            arguments,
            seed=seed + 1000 * program,
            program=program,
            programs=programs,
            others=(ring, fragments, weights),
            reads_once=False,
            exp2=np.exp2,
            reciprocal=lambda x: 1 / x,
            codes_of=codes_of,
            packed_codes_of=packed_codes_of,
            ones_of=lambda element, shape, layout: block(np.ones(shape, element.array)),
            evaluate=lambda program, r: r,
            stored=lambda program, output, results, element: results[0],
            store_layout=lambda columns, element: None,
            uniform=lambda x: x,
        )
    keys = np.repeat(k_scale, block_n, 2)[..., :T, None]
    if has_codes:
        q, k = q * q_scale[..., None], k * keys
    else:
        q = q * scale
    if values == "fp8":
        v = v * np.repeat(v_scale, block_n, 2)[..., :T, None]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    products = q @ k.swapaxes(2, 3)
    if mask is not None:
        products = products + given * math.log2(math.e)
    if is_causal:
        products = np.where(np.arange(T) <= np.arange(S)[:, None], products, -np.inf)
    largest = products.max(3, keepdims=True)
    p = np.exp2(products - np.where(largest == -np.inf, 0, largest))
    expected = (p / np.maximum(p.sum(3, keepdims=True), 1e-300) @ v)[..., :columns]
    return y.reshape(B, S, H, columns).swapaxes(1, 2), expected


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


FLOATS = {"scores": "floats", "values": "floats"}
CASES = [
    ((1, 1, 64, 32), {"programs": 1}),  # one block; the second consumer's queries are not there
    ((1, 1, 130, 77), {"programs": 1}),
    ((2, 3, 200, 100), {}),
    ((1, 2, 130, 333), {"stages": 4, "programs": 3}),
    ((1, 4, 70, 65), {"groups": 2}),
    ((1, 2, 150, 90), {"columns": 12}),
    ((2, 1, 300, 300), {}),
    ((1, 3, 260, 160), {"programs": 1}),
    ((1, 2, 200, 200), {}),
    ((1, 2, 200, 200), {"is_causal": True}),
    ((1, 2, 200, 90), {"is_causal": True, "programs": 1}),
    ((1, 2, 90, 300), {"is_causal": True}),
    ((1, 2, 130, 200), {"values": "floats"}),
    ((1, 2, 130, 200), {"scores": "floats", "values": "floats"}),
    ((1, 2, 130, 200), {"scores": "floats"}),
    ((1, 1, 1, 1), {"programs": 1}),
    ((1, 5, 200, 20), {"programs": 1}),  # tiles of one block
    ((1, 5, 200, 20), {**FLOATS, "programs": 1}),
    ((1, 3, 300, 290), {**FLOATS, "is_causal": True, "programs": 1}),
    ((2, 2, 130, 200), {**FLOATS, "mask": (2, 1, 1, 200)}),
    ((2, 2, 130, 200), {**FLOATS, "mask": (1, 2, 1, 200), "programs": 1}),
    ((2, 2, 130, 200), {**FLOATS, "mask": (2, 1, 1, 200), "visible": 70, "stages": 4}),
    ((2, 2, 130, 90), {**FLOATS, "mask": (2, 1, 1, 90), "visible": 1}),
    ((2, 2, 130, 90), {**FLOATS, "mask": (2, 1, 1, 90), "visible": -40}),  # none of the first block
    ((2, 2, 130, 90), {**FLOATS, "mask": (2, 1, 1, 90), "visible": 0}),  # the first sample's are zeros
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_every_element_is_that_of_the_reference(sizes, options, seed):
    found, expected = attended(sizes, seed=seed, **options)
    assert np.isfinite(found).all()
    assert (found != -77777).all()
    # Sums of codes share a rounding of 2**23 of them in their block, here 4e-4 at most.
    assert relative(found, expected) < (2e-4 if options.get("scores") != "floats" else 3e-6)


def test_weights_are_rounded_to_fp8():
    found, expected = attended((1, 2, 200, 200), rounds_weights=True)
    # Half a unit of the last of 4 digits at most, a third of that on average.
    assert 1e-3 < relative(found, expected) < 2**-4


@pytest.mark.parametrize("lines", [0, 2])
@pytest.mark.parametrize("options", [{}, {"values": "floats"}, FLOATS])
def test_consumers_begin_their_products_in_turn(options, lines):
    for seed in range(3):
        found, expected = attended((1, 3, 200, 130), turns=True, seed=seed, lines=lines, **options)
        assert relative(found, expected) < 2e-4


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    parity = 1\n", "    parity = 0\n"),
        ("    q_parity = 1\n", "    q_parity = 0\n"),
        ("warpgroup_mma_wait(2, deps=(ahead,))", "ahead"),
        ("warpgroup_mma_wait(2, deps=(ahead,))", "warpgroup_mma_wait(3, deps=(ahead,))"),
        ("warpgroup_mma_wait(0, deps=(part, counts))", "warpgroup_mma_wait(1, deps=(part, counts))"),
        ("    mbarrier.arrive(empty.index(stage), count=1)\n    totals", "    totals"),
        ("mbarrier.init(empty.index(i), count=CONSUMERS)", "mbarrier.init(empty.index(i), count=1)"),
        ("mbarrier.init(q_empty.index(i), count=CONSUMERS)", "mbarrier.init(q_empty.index(i), count=1)"),
        ("there = gl.where(block == 0, stage, following)", "there = following"),
        ("gl.where(has_more, following, stage)", "stage"),
        ("gl.where(block > 1, later, gl.where(block == 1, following, stage))", "later"),
        ("gl.where(block > 1, later, gl.where(block == 1, following, stage))", "following"),
        ("gl.where(block > 1, later_parity, gl.where(block == 1, next_parity, parity))", "next_parity"),
        ("        slot = slot ^ 1\n        total", "        total"),
        ("turn ^ 1", "turn"),
        ("q_parity = q_parity ^ slot\n\n", "q_parity = q_parity ^ 1\n\n"),
        (
            "                mbarrier.arrive(empty.index(stage), count=1)\n                stage",
            "                stage",
        ),
        ("parity, STAGES)\n                mbarrier.wait(full.index(stage), parity)\n", "parity, STAGES)\n"),
    ],
)
def test_a_wrong_protocol_is_found(right, wrong, tmp_path):
    module = altered(triton_kernel, right, wrong, tmp_path)
    with pytest.raises((Rules, AssertionError, TypeError, AttributeError)):
        for seed in range(12):
            sizes = (1, 3, 200, 130)
            found, expected = attended(sizes, seed=seed, programs=1, module=module, turns=seed % 2 == 1)
            assert relative(found, expected) < 2e-4
            options = {**FLOATS, "mask": (2, 1, 1, 130), "visible": 40, "programs": 1}
            found, expected = attended((2, 2, 200, 130), seed=seed, module=module, **options)
            assert relative(found, expected) < 2e-4


def run_text(text, arguments):
    """What PTX of `codes_text` makes of one thread's float32 arguments: two words."""
    registers = {f"${2 + at}": np.float32(value) for at, value in enumerate(arguments)}

    def value(name):
        return np.uint32(int(name[2:], 16)).view(np.float32) if name.startswith("0f") else registers[name]

    for line in text.replace("{ .reg", ".reg").rstrip("}").split(";"):
        name, _, rest = line.strip().partition(" ")
        target, *names = [part.strip(" {}") for part in rest.split(",")]
        if name.startswith("fma.rn"):
            a, b, c = (np.float64(value(part)) for part in names)
            found = np.float32(a * b + c)
            registers[target] = np.float32(np.clip(found, 0, 1)) if ".sat." in name else found
        elif name.startswith("ex2"):
            registers[target] = np.exp2(value(names[0]))
        elif name.startswith("cvt.pack"):
            high, low = (np.clip(registers[part].view(np.int32), 0, 255) for part in names[:2])
            rest = np.uint32(0) if names[2] == "0" else registers[names[2]] << np.uint32(16)
            registers[target] = rest | np.uint32(high << 8 | low)
        elif name.startswith("cvt"):
            high, low = (min(value(part), np.float32(448)) for part in names)
            registers[target] = np.array([low, high]).astype(FP8).view(np.uint16)[0]
        elif name == "mov.b32" and len(names) == 2:
            registers[target] = np.uint32(registers[names[0]]) | np.uint32(registers[names[1]]) << np.uint32(
                16
            )
        elif name == "mov.b32":
            registers[target] = value(names[0]).view(np.uint32)
        elif name == "prmt.b32":
            both = np.array([registers[part] for part in names[:2]], np.uint32).view(np.uint8)
            chosen = [int(digit, 16) for digit in reversed(names[2].removeprefix("0x").zfill(4))]
            registers[target] = both[chosen].view(np.uint32)[0]
        else:
            assert name in (".reg", ""), line
    return np.array([registers["$0"], registers["$1"]], np.uint32)


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_codes_are_powers_of_two_rounded(lines, rng):
    text = weights.codes_text.fn(lines) if hasattr(weights.codes_text, "fn") else weights.codes_text(lines)
    x = np.concatenate([rng.uniform(-6, 8, 1996), [8.0] * 4]).astype(np.float32)
    tiny = np.array([-30.0, -1e3, -1e30, -np.inf] * 2, np.float32)

    def coded(part):
        scale, shift = np.full(8, 0.5, np.float32), np.full(8, 1.0, np.float32)
        arguments = [
            2 * (part - 1),
            scale,
            shift,
            scale * 0.0625,
            shift * 0.0625 + weights.LINE_SHIFT.value,
        ]
        return run_text(text, np.concatenate(arguments)).view(FP8).astype(np.float64).reshape(2, 4)

    ratios = np.array([coded(part) for part in x.reshape(-1, 8)]) / np.exp2(x).reshape(-1, 2, 4)
    for word in range(2):
        off = ratios[:, word] - 1
        # Half a unit of the last of 4 digits, 2**-4 at most; of lines 0.46 of an eighth more.
        assert np.abs(off).max() < 2**-4 + (0.46 / 8 if word < lines else 1e-6)
        assert off.std() < (0.034 if word < lines else 0.027)
        assert abs(off.mean()) < 4e-3
    assert not coded(tiny).any()


@pytest.mark.parametrize("exponent", [-30, -20, -12, -9])
def test_packed_codes_are_lines_rounded(exponent, rng):
    """Against the straight line; NaN would be code 127."""
    scale = np.float32(2.0**exponent * rng.uniform(1, 2))
    sums = np.sort(rng.integers(-2064512, 2064513, 2000)).astype(np.int32)
    shift = np.float32(8) - np.float32(sums[-1]) * scale
    found = packed(sums, scale, shift)
    line = 8 * (sums * np.float64(scale) + shift + 7) - 0.46
    assert found.max() in (119, 120)
    assert np.abs(found - np.maximum(line, 0)).max() < 0.5 + 0.08  # scores of 2**12 octaves
    unseen = np.array([weights.UNSEEN_CODES.value] * 8, np.int32)
    assert not packed(unseen, scale, shift).any()


@pytest.mark.parametrize("exponent", range(-8, 16, 3))
def test_packed_codes_are_never_nan(exponent, rng):
    for _ in range(200):
        scale = np.float32(2.0**exponent * rng.uniform(1, 2))
        sums = rng.integers(-2064512, 2064513, 64).astype(np.int32)
        shift = np.float32(8) - np.float32(sums.max()) * scale
        assert packed(sums, scale, shift).max() <= 120


def packed(sums, scale, shift):
    """Codes by the kernel's own factors and text."""
    scope = {name: getattr(value, "value", value) for name, value in vars(weights).items()}
    fma = lambda a, b, c: np.float32(np.float64(a) * np.float64(b) + np.float64(c))  # noqa: E731
    scope["gl"] = types.SimpleNamespace(fma=fma)
    code = weights.packed_factors.fn.__code__
    with np.errstate(all="ignore"):
        factors = types.FunctionType(code, scope)(scale, shift)
    unit, least = (np.full(8, factor, np.float32) for factor in factors)
    made = weights.packed_text
    text = made.fn() if hasattr(made, "fn") else made()
    x = (sums + np.int32(weights.SMALL.value)).view(np.float32)
    words = [run_text(text, np.concatenate([part, unit, least])) for part in x.reshape(-1, 8)]
    return np.concatenate(words).view(np.uint8).astype(int)


def test_on_a_cpu_it_is_refused():
    spec = kernel_of(bert(mask="none"), HopperAttention("int8", "fp8", 64, 3))
    with pytest.raises(DeviceError, match="in Gluon, which has no interpreter"):
        InterpreterLauncher(spec)
