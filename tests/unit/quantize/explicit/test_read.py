# SPDX-License-Identifier: Apache-2.0
"""Models that are quantized already: what is read of them, by the documented placement rules.

NVIDIA TensorRT developer guide, "Working with quantized types": Q/DQ propagation and placement.
"""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.quantize.explicit.read import read
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import sqnr_db
from tests.nets import net, nodes, quantized, resnet, samples

EXACT_DB = 100.0
"""Equal codes: what is left are sums of float32 in another order."""

RNG_SEED = 5

IMAGE = {"x": samples(2, 3, 8, 8)}
ROWS = {"x": samples(4, 8)}


def scale(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def codes(*shape: int, dtype: type = np.int8, lo: int = -127, hi: int = 127) -> np.ndarray:
    return np.random.default_rng(RNG_SEED).integers(lo, hi + 1, shape).astype(dtype)


# Of irrational ratios: no sum of products lies halfway between two codes, where its rounding is anyone's.
CONSTANTS = {
    "s": scale(0.01 * np.e),
    "s2": scale(0.05 / np.sqrt(2)),
    "s3": scale(0.02 * np.sqrt(3)),
    "s4": scale(0.01 * np.sqrt(5)),
    "z": np.asarray(0, np.int8),
    "z128": np.asarray(128, np.uint8),
    "z7": np.asarray(7, np.int8),
    "w": codes(8, 3, 3, 3),
    "ws": np.sqrt(np.linspace(1e-6, 16e-6, 8)).astype(np.float32),
    "wz": np.zeros(8, np.int8),
    "v": codes(8, 8, 3, 3),
    "p": codes(8, 3, 1, 1),
    "b": codes(8, dtype=np.int32, lo=-9000, hi=9000),
    "bs": np.linspace(0.00003, 0.0001, 8, dtype=np.float32),
    "g": codes(8, 8),
}

ZEROS = {"z3": np.asarray(-3, np.int8), "u9": np.asarray(9, np.uint8)}

WEIGHTS = "dw = DequantizeLinear<axis=0>(w, ws, wz) dv = DequantizeLinear<axis=0>(v, ws, wz)"


def pair(source: str, result: str, grid: str = "s", zero: str = "z") -> str:
    """QuantizeLinear -> DequantizeLinear."""
    return (
        f"{result}_q = QuantizeLinear({source}, {grid}, {zero}) "
        f"{result} = DequantizeLinear({result}_q, {grid}, {zero})"
    )


def images(body: str, output: str = "float[N,C,H,W] y", **constants: np.ndarray) -> Model:
    return _model(f"net (float[N,3,8,8] x) => ({output}) {{ {body} }}", constants)


def rows(body: str, **constants: np.ndarray) -> Model:
    return _model(f"net (float[N,8] x) => (float[N,8] y) {{ {body} }}", constants)


def _model(text: str, constants: dict[str, np.ndarray]) -> Model:
    used = {name: array for name, array in {**CONSTANTS, **constants}.items() if _reads(text, name)}
    return net(text, used)


def _reads(text: str, name: str) -> bool:
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return name in words


def run_plain(graph: ir.Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of ONNX Runtime without its rewrites, which multiply by scales in another order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(graph).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def check(model: Model, inputs: dict[str, np.ndarray], floor_db: float = EXACT_DB) -> QuantizedModel:
    """What is read, after it was seen to compute what the model computes."""
    result = read(model)
    for wanted, got in zip(run_plain(model.graph, inputs), run_plain(write(result), inputs), strict=True):
        assert sqnr_db(wanted, got) > floor_db
    kept = {node.op_type for node in result.graph.graph}
    assert not kept & {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"}
    return result


def int8(result: QuantizedModel) -> list[str]:
    return [row.op_type for row in result.placement.decisions if row.is_int8]


def reason(result: QuantizedModel, op_type: str) -> str:
    (found,) = {row.reason for row in result.placement.decisions if row.op_type == op_type}
    return found


def roundings(result: QuantizedModel) -> int:
    return len(nodes(result.graph, "Round"))


# ------------------------------------------------------------------------------------------------ layers


def test_a_convolution_between_pairs_reads_codes_and_its_result_is_rounded_for_the_caller():
    result = check(images(f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) {pair('h', 'y', 's2')}"), IMAGE)
    assert int8(result) == ["Conv"]
    ((use, value),) = result.placement.uses.items()
    assert use[1] == 0 and value == "x"
    assert result.activations["x"].scale == CONSTANTS["s"] and not result.activations["x"].zero_point
    assert roundings(result) == 1


def test_so_does_a_transposed_convolution():
    weights = {
        "t": codes(3, 8, 2, 2),
        "ts": np.sqrt(np.linspace(1e-6, 4e-6, 8)).astype(np.float32),
        "tz": np.zeros(8, np.int8),
    }
    body = (
        f"dt = DequantizeLinear<axis=1>(t, ts, tz) {pair('x', 'a')} "
        f"h = ConvTranspose<kernel_shape=[2,2], strides=[2,2]>(a, dt) {pair('h', 'y', 's2')}"
    )
    result = check(images(body, **weights), IMAGE)
    assert int8(result) == ["ConvTranspose"]
    assert result.placement.uses == {(nodes(result.graph, "ConvTranspose")[0].name, 0): "x"}
    assert roundings(result) == 1


def test_without_a_pair_behind_it_a_convolution_gives_floats():
    result = check(images(f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) y = Exp(h)"), IMAGE)
    assert int8(result) == ["Conv"] and roundings(result) == 0


def test_what_reads_a_value_that_is_not_quantized_stays_float():
    result = check(images(f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) y = Conv(h, dv)"), IMAGE)
    assert int8(result) == ["Conv"]
    last = result.placement.decisions[-1]
    assert not last.is_int8 and last.reason == "its input does not come as int8 codes"


def test_a_reader_of_floats_gets_the_rounded_value():
    body = f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) e = Exp(a) y = Concat<axis=1>(h, e)"
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv"] and roundings(result) == 1


# ------------------------------------------------------------------------------------------- propagation

MOVES = {
    "MaxPool": "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)",
    "Transpose": "m = Transpose<perm=[0,1,3,2]>(a)",
    "Slice": "m = Slice(a, begin, end, axes)",
    "Reshape": "m = Reshape(a, shape)",
}
BOUNDS = {
    "begin": np.array([1]),
    "end": np.array([7]),
    "axes": np.array([2]),
    "shape": np.array([-1, 3, 4, 16]),
}


@pytest.mark.parametrize("op_type", MOVES)
@pytest.mark.parametrize("is_repeated", [False, True], ids=["once", "again"])
def test_dequantization_moves_forward_over_what_moves_values(op_type: str, is_repeated: bool):
    again = pair("m", "n") if is_repeated else "n = Identity(m)"
    result = check(
        images(f"{WEIGHTS} {pair('x', 'a')} {MOVES[op_type]} {again} y = Conv(n, dw)", **BOUNDS), IMAGE
    )
    (mover,) = nodes(result.graph, op_type)
    assert result.placement.uses == {(mover.name, 0): "x"}
    assert int8(result) == ["Conv"] and roundings(result) == 0


def test_quantization_on_another_scale_behind_a_pool_is_kept():
    pool = "m = MaxPool<kernel_shape=[2,2]>(a)"
    body = f"{WEIGHTS} {pair('x', 'a')} {pool} {pair('m', 'n', 's2')} y = Conv(n, dw)"
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv"] and roundings(result) == 1
    assert [float(grid.scale) for grid in result.activations.values()] == [float(CONSTANTS["s2"])]


def test_pairs_that_are_there_twice_are_one():
    body = f"{WEIGHTS} {pair('x', 'a')} {pair('x', 'c')} h = Conv(a, dw) k = Conv(c, dw) y = Add(h, k)"
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and roundings(result) == 0 and set(result.activations) == {"x"}


def test_a_value_with_two_scales_has_two_grids():
    body = f"{WEIGHTS} {pair('x', 'a')} {pair('x', 'c', 's2')} h = Conv(a, dw) k = Conv(c, dw) y = Add(h, k)"
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and len(result.activations) == 2 and roundings(result) == 1


def test_a_pair_in_front_of_a_relu_moves_behind_it():
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) {pair('h', 'k')} r = Relu(k) {pair('r', 'n')} "
        "y = Conv(n, dv)"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and roundings(result) == 0


CLIPS = {
    "bounds on the grid": ("s", "z", 0.0, 64, 0),
    "bounds beyond the codes": ("s", "z7", -500.0, 500, 0),
    "a bound between two codes": ("s", "z7", 0.0, 20.5, 1),
    "a bound beyond on one side": ("s", "z", -200.0, 20.5, 1),
}


@pytest.mark.parametrize("kind", CLIPS)
def test_a_pair_in_front_of_a_clip_moves_behind_it_where_the_bounds_are_kept(kind: str):
    grid, zero, lo, hi, left = CLIPS[kind]
    bounds = {"lo": np.float32(lo) * CONSTANTS[grid], "hi": np.float32(hi) * CONSTANTS[grid]}
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) {pair('h', 'k', grid, zero)} r = Clip(k, lo, hi) "
        f"{pair('r', 'n', grid, zero)} y = Conv(n, dv)"
    )
    result = check(images(body, **bounds), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and roundings(result) == left


# -------------------------------------------------------------------------------- residuals, concatenation


def test_both_branches_of_a_residual_sum_read_codes():
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) r = Relu(h) {pair('r', 'k')} "
        f"c = Conv<pads=[1,1,1,1]>(k, dv) {pair('c', 'd', 's2')} y = Add(d, k)"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "Conv", "Add"]
    (add,) = nodes(result.graph, "Add")
    assert result.placement.uses[(add.name, 1)] == "r"
    assert roundings(result) == 1, "the branch that is still in registers is rounded there"


def test_of_a_residual_that_is_not_quantized_only_the_products_read_codes():
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) {pair('h', 'k')} "
        f"c = Conv<pads=[1,1,1,1]>(k, dv) y = Add(c, h)"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and roundings(result) == 0


@pytest.mark.parametrize("grid", ["s", "s2"], ids=["equal scales", "unequal scales"])
def test_a_concatenation_is_quantized_for_its_reader_and_its_inputs_keep_their_scales(grid: str):
    body = (
        f"{WEIGHTS} t = Tanh(x) u = Sigmoid(x) {pair('t', 'a')} {pair('u', 'c', grid)} "
        f"m = Concat<axis=2>(a, c) {pair('m', 'n')} y = Conv(n, dw)"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv"]
    assert roundings(result) == 2
    assert result.placement.uses == {(nodes(result.graph, "Conv")[0].name, 0): "m"}


def test_a_mean_between_pairs_reads_codes():
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) r = Relu(h) {pair('r', 'k')} "
        f"m = GlobalAveragePool(k) {pair('m', 'y', 's4')}"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "GlobalAveragePool"]
    (pool,) = nodes(result.graph, "GlobalAveragePool")
    assert (pool.name, 0) in result.placement.uses


@pytest.mark.parametrize("behind", ["y = Exp(m)", f"{pair('m', 'n')} y = Exp(n)"], ids=["floats", "a pair"])
def test_a_mean_of_codes_may_give_floats(behind: str):
    """Our kernels do; TensorRT has none that read codes and write floats but for products."""
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) r = Relu(h) {pair('r', 'k')} "
        f"m = GlobalAveragePool(k) {behind}"
    )
    result = check(images(body), IMAGE)
    assert int8(result) == ["Conv", "GlobalAveragePool"]


def test_a_pool_whose_result_is_read_in_floats_reads_floats():
    """A maximum moves codes; without a reader of codes behind it the rounding stays before it."""
    body = (
        f"{WEIGHTS} {pair('x', 'a')} h = Conv<pads=[1,1,1,1]>(a, dw) {pair('h', 'k')} "
        "m = MaxPool<kernel_shape=[2,2]>(k) y = Exp(m)"
    )
    result = check(images(body), IMAGE)
    (conv,) = nodes(result.graph, "Conv")
    assert result.placement.uses == {(conv.name, 0): "x"} and roundings(result) == 1


def test_nothing_moves_over_an_operator_without_an_8_bit_kernel():
    body = f"{WEIGHTS} {pair('x', 'a')} e = LeakyRelu(a) {pair('e', 'k')} y = Conv(k, dw)"
    result = check(images(body), IMAGE)
    (conv,) = nodes(result.graph, "Conv")
    assert result.placement.uses == {(conv.name, 0): "e"} and roundings(result) == 1


# ----------------------------------------------------------------------------------------------- weights


def test_codes_and_scales_of_weights_are_the_models_own():
    body = f"{WEIGHTS} db = DequantizeLinear<axis=0>(b, bs) {pair('x', 'a')} y = Conv(a, dw, db)"
    result = check(images(body), IMAGE)
    (tensor,) = result.weights.values()
    assert np.array_equal(tensor.codes, CONSTANTS["w"]) and tensor.codes.dtype == np.int8
    assert np.array_equal(tensor.qparams.scale, CONSTANTS["ws"]) and tensor.qparams.axis == 0
    bias = nodes(result.graph, "Conv")[0].inputs[2].const_value.numpy()
    assert np.array_equal(bias, CONSTANTS["b"].astype(np.float32) * CONSTANTS["bs"])


def test_float_weights_behind_both_nodes_are_quantized_as_they_say():
    values = {
        "f": CONSTANTS["w"].astype(np.float32) * CONSTANTS["ws"].reshape(-1, 1, 1, 1) * np.float32(1.001)
    }
    both = "q = QuantizeLinear<axis=0>(f, ws, wz) dw = DequantizeLinear<axis=0>(q, ws, wz)"
    body = f"{both} {pair('x', 'a')} y = Conv(a, dw)"
    result = check(images(body, **values), IMAGE)
    (tensor,) = result.weights.values()
    assert np.array_equal(tensor.codes, CONSTANTS["w"])


@pytest.mark.parametrize(("lo", "hi", "is_int8"), [(0, 240, True), (0, 255, False)])
def test_a_zero_point_of_weights_is_taken_off_where_int8_holds_the_rest(lo: int, hi: int, is_int8: bool):
    arrays = {"u": codes(8, 3, 3, 3, dtype=np.uint8, lo=lo, hi=hi), "us": scale(0.004)}
    arrays["u"].reshape(-1)[:2] = lo, hi
    arrays["uz"] = np.asarray(120, np.uint8)
    body = f"dw = DequantizeLinear(u, us, uz) {pair('x', 'a')} y = Conv(a, dw)"
    result = check(images(body, **arrays), IMAGE)
    assert int8(result) == (["Conv"] if is_int8 else [])
    if is_int8:
        (tensor,) = result.weights.values()
        assert np.array_equal(tensor.codes, arrays["u"].astype(np.int64) - 120)
    else:
        assert reason(result, "Conv") == "its weight has codes beyond int8 once its zero point is taken off"


def test_a_transposed_weight_is_stored_transposed():
    weight = "dg = DequantizeLinear<axis=0>(g, ws, wz) t = Transpose<perm=[1,0]>(dg)"
    body = f"{weight} {pair('x', 'a')} y = MatMul(a, t)"
    result = check(rows(body), ROWS)
    (tensor,) = result.weights.values()
    assert np.array_equal(tensor.codes, CONSTANTS["g"].T) and tensor.qparams.axis == 1


def test_scales_along_the_inner_axis_stay_float():
    body = f"dg = DequantizeLinear<axis=0>(g, ws, wz) {pair('x', 'a')} y = MatMul(a, dg)"
    result = check(rows(body), ROWS)
    assert int8(result) == [] and "another axis" in reason(result, "MatMul") and roundings(result) == 1


def test_a_product_of_two_activations_is_rounded_in_floats():
    result = check(images(f"{pair('x', 'a')} {pair('x', 'c', 's2')} y = MatMul(a, c)"), IMAGE)
    assert int8(result) == [] and "two activations" in reason(result, "MatMul") and roundings(result) == 2


def test_a_product_without_quantized_weights_stays_float():
    values = {"f": samples(8, 8)}
    result = check(rows(f"{pair('x', 'a')} y = MatMul(a, f)", **values), ROWS)
    assert int8(result) == [] and reason(result, "MatMul") == "its weight is not quantized"


# ------------------------------------------------------------------------------------------- zero points


def test_uint8_around_128_is_int8_around_0():
    result = check(images(f"{WEIGHTS} {pair('x', 'a', zero='z128')} y = Conv<pads=[1,1,1,1]>(a, dw)"), IMAGE)
    assert int8(result) == ["Conv"] and roundings(result) == 0 and set(result.activations) == {"x"}


@pytest.mark.parametrize("zero", ["z7", "z3", "u9"])
@pytest.mark.parametrize(
    "product",
    ["dg = DequantizeLinear<axis=0>(g, ws, wz) {} y = Gemm<transB=1>(a, dg)",
     "dg = DequantizeLinear<axis=1>(g, ws, wz) {} y = MatMul(a, dg)"],
    ids=["Gemm", "MatMul"],
)  # fmt: skip
def test_a_zero_point_stays_in_the_codes_that_a_product_reads(product: str, zero: str):
    result = check(rows(product.format(pair("x", "a", zero=zero)), **ZEROS), ROWS)
    assert len(int8(result)) == 1 and roundings(result) == 0 and not nodes(result.graph, "Add")
    (grid,) = result.activations.values()
    assert int(grid.zero_point) == {"z7": 7, "z3": -3, "u9": 9 - 128}[zero]


ATTRIBUTES = {
    "unpadded": "",
    "padded": "<pads=[1,1,1,1]>",
    "asymmetric": "<pads=[0,1,2,0]>",
    "strided": "<pads=[0,0,1,1], strides=[2,2]>",
    "dilated": "<pads=[2,2,2,2], dilations=[2,2]>",
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
@pytest.mark.parametrize("zero", ["z7", "u9"])
def test_padding_of_codes_with_a_zero_point_is_of_that_code(kind: str, zero: str):
    body = f"{WEIGHTS} {pair('x', 'a', zero=zero)} y = Conv{ATTRIBUTES[kind]}(a, dw)"
    result = check(images(body, **ZEROS), IMAGE)
    assert int8(result) == ["Conv"] and roundings(result) == 0


def test_groups_without_a_kernel_for_zero_points_stay_float():
    arrays = {"q": codes(6, 1, 3, 3), "r": codes(6, 3, 1, 1)}
    weight = "dq = DequantizeLinear<axis=0>(q, qs, qz) dr = DequantizeLinear<axis=0>(r, qs, qz)"
    arrays |= {"qs": CONSTANTS["ws"][:6], "qz": CONSTANTS["wz"][:6]}
    body = (
        f"{weight} {pair('x', 'a', zero='z7')} c = Conv<group=3>(a, dq) {pair('c', 'd', zero='z7')} "
        "y = Conv<group=2>(d, dr)"
    )
    result = check(images(body, **arrays), IMAGE)
    reasons = [row.reason for row in result.placement.decisions if row.op_type == "Conv"]
    assert int8(result) == [] and reasons == [
        "no kernel of groups of 1 channels reads codes with a zero point",
        "no kernel of groups of 3 channels reads codes with a zero point",
    ]


def test_both_branches_of_a_residual_sum_read_codes_with_their_own_zero_points():
    body = (
        f"{WEIGHTS} {pair('x', 'a', zero='z7')} h = Conv(a, dw) r = Relu(h) {pair('r', 'k', zero='z7')} "
        f"c = Conv(k, dp) {pair('c', 'd', 's2', 'z3')} t = Add(d, k) {pair('t', 'y', 's4', 'z7')}"
    )
    arrays = {**ZEROS, "p8": codes(8, 8, 1, 1)}
    body = f"dp = DequantizeLinear<axis=0>(p8, ws, wz) {body}"
    result = check(images(body, **arrays), IMAGE)
    assert int8(result) == ["Conv", "Conv", "Add"]
    (add,) = (node for node in nodes(result.graph, "Add") if (node.name, 1) in result.placement.uses)
    assert (add.name, 0) in result.placement.uses


def test_values_beyond_the_range_saturate():
    inputs = {"x": np.array([[-1e9, -4.0, -3.84, 0.0, 3.6, 3.81, 4.0, 1e9]], np.float32)}
    for zero in ("z", "z7", "z128"):
        body = (
            f"dg = DequantizeLinear<axis=0>(g, ws, wz) {pair('x', 'a', zero=zero)} y = Gemm<transB=1>(a, dg)"
        )
        check(rows(body), inputs)
        check(rows(f"{pair('x', 'a', zero=zero)} y = Neg(a)"), inputs)


def test_where_a_product_is_left_in_floats_its_input_saturates_as_it_did():
    body = f"{WEIGHTS} {pair('x', 'a')} h = Conv(a, dw) {pair('h', 'k', 's2')} y = Conv(k, dv)"
    result = check(images(body, s2=scale(0.001)), IMAGE)
    assert int8(result) == ["Conv", "Conv"] and roundings(result) == 0
    values = {value.name: value for node in result.graph.graph for value in node.outputs}
    assert values["h"].producer().op_type == "Clip"
    (wanted,), (got,) = run_plain(images(body, s2=scale(0.001)).graph, IMAGE), run_plain(result.graph, IMAGE)
    assert sqnr_db(wanted, got) > 20.0, "not rounded, but saturated"


# ------------------------------------------------------------------------------- operators, what is left


@pytest.mark.parametrize("bias", ["", ", b"])
def test_qlinear_conv_is_a_convolution_between_pairs(bias: str):
    body = f"q = QuantizeLinear(x, s, z) h = QLinearConv(q, s, z, p, ws, wz, s3, z{bias})"
    model = images(f"{body} y = DequantizeLinear(h, s3, z)")
    result = read(model)
    assert int8(result) == ["QLinearConv"]
    (wanted,), (got,) = run_plain(model.graph, IMAGE), run_plain(write(result), IMAGE)
    steps = np.abs(wanted - got) / CONSTANTS["s3"]
    assert steps.max() < 1.5 and (steps > 0.5).mean() < 0.01  # ties of sums in integers and in floats


def test_qlinear_matmul_is_a_product_between_pairs():
    body = "q = QuantizeLinear(x, s, z) h = QLinearMatMul(q, s, z, g, ws, wz, s3, z)"
    model = rows(f"{body} y = DequantizeLinear(h, s3, z)")
    result = read(model)
    assert int8(result) == ["QLinearMatMul"]
    (wanted,), (got,) = run_plain(model.graph, ROWS), run_plain(write(result), ROWS)
    assert np.abs(wanted - got).max() < 1.5 * CONSTANTS["s3"]


def test_dynamic_quantization_runs_as_it_is():
    body = "q, d, e = DynamicQuantizeLinear(x) h = MatMulInteger(q, g, e) c = Cast<to=1>(h) y = Mul(c, d)"
    model = rows(body)
    result = read(model)
    assert int8(result) == [] and "known only when it runs" in reason(result, "MatMulInteger")
    (wanted,), (got,) = run_plain(model.graph, ROWS), run_plain(result.graph, ROWS)
    assert np.array_equal(wanted, got)


def test_an_activation_with_scales_per_channel_is_computed_as_it_is():
    arrays = {"cs": np.array([0.02, 0.03, 0.04], np.float32), "cz": np.zeros(3, np.int8)}
    both = "q = QuantizeLinear<axis=1>(x, cs, cz) a = DequantizeLinear<axis=1>(q, cs, cz)"
    model = images(f"{WEIGHTS} {both} y = Conv(a, dw)", **arrays)
    result = read(model)
    assert int8(result) == [] and "a scale per channel" in reason(result, "QuantizeLinear")
    (wanted,), (got,) = run_plain(model.graph, IMAGE), run_plain(result.graph, IMAGE)
    assert sqnr_db(wanted, got) > EXACT_DB


def test_codes_that_leave_the_model_keep_their_node():
    body = f"{WEIGHTS} q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) y = Conv(a, dw)"
    model = images(body, output="float[N,C,H,W] y, int8[N,3,8,8] q")
    result = read(model)
    assert int8(result) == ["Conv"]
    wanted, got = run_plain(model.graph, IMAGE), run_plain(write(result), IMAGE)
    assert np.array_equal(wanted[1], got[1]) and sqnr_db(wanted[0], got[0]) > EXACT_DB


def test_the_given_model_is_left_as_it_was():
    model = images(f"{WEIGHTS} {pair('x', 'a', zero='z7')} h = Conv(a, dw) {pair('h', 'y')}")
    before = ir.to_proto(model.graph).SerializeToString()
    read(model)
    assert ir.to_proto(model.graph).SerializeToString() == before


# -------------------------------------------------------------------------------------------- round trip


def test_what_was_written_is_read_again():
    source = quantized(resnet(), CUDA, {"x": samples(4, 3, 16, 16)})
    result = check(make_model(write(source)), {"x": samples(2, 3, 16, 16)})
    assert result.placement.uses == source.placement.uses
    assert result.placement.weights == source.placement.weights
    assert result.activations.keys() == source.activations.keys()
    for name, grid in source.activations.items():
        assert result.activations[name].scale == grid.scale
    for use, tensor in source.weights.items():
        assert np.array_equal(result.weights[use].codes, tensor.codes)
        assert np.array_equal(result.weights[use].qparams.scale, tensor.qparams.scale)


def test_a_model_for_onnx_runtime_with_zero_points_is_read_too():
    inputs = {"x": samples(4, 3, 16, 16)}
    result = read(make_model(write(quantized(resnet(), ORT, inputs))))
    products = [row for row in result.placement.decisions if row.op_type in ("Conv", "Gemm")]
    assert all(row.is_int8 for row in products)
