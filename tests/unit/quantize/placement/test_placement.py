# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.errors import UsageError
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.placement.placement import place
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS, target_named
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import CONV, RESNET, int8_nodes, net, nodes, reason, resnet, weights

SQUARE = {"w": (8, 8, 3, 3), "v": (8, 8, 3, 3), "u": (8, 8, 3, 3)}


def map_net(body: str, shapes: dict[str, tuple[int, ...]] | None = None, **options):
    """A net on maps [N, 8, 6, 6] with square convolutions w, v, u."""
    shapes = SQUARE if shapes is None else shapes
    used = {name: array for name, array in weights(shapes).items() if f", {name}" in body}
    return net(f"net (float[N,8,6,6] x) => (float[N,8,6,6] y) {{ {body} }}", used, **options)


def conv(out: str, source: str, weight: str) -> str:
    return f"{out} = Conv<pads=[1,1,1,1]>({source}, {weight})"


def placed(model, target: Target, **options):
    return place(model.graph, target, **options)


def test_onnx_runtime_quantizes_outputs_after_the_activation_and_every_reader():
    placement = placed(resnet(), ORT)
    assert placement.values == {"x", "r0", "r1", "c2", "r2", "pool", "r3", "mean", "flat"}
    assert placement.uses[("Add_5", 0)] == "c2" and placement.uses[("Add_5", 1)] == "r0"
    compute = {"Conv_0", "Conv_2", "Conv_4", "Add_5", "Conv_8", "GlobalAveragePool_10", "Gemm_12"}
    inside = {"Relu_1", "Relu_3", "Relu_6", "Relu_9"}
    assert int8_nodes(placement) == compute | inside
    assert "computed inside" in reason(placement, "Relu_6")


def test_why_a_node_is_8_bit_is_told_by_what_it_does():
    placement = placed(resnet(), ORT)
    assert {name: reason(placement, name) for name in ("Conv_0", "Add_5", "GlobalAveragePool_10")} == {
        "Conv_0": "it multiplies 8-bit codes",
        "Add_5": "residual sum of an 8-bit convolution",
        "GlobalAveragePool_10": "its input is 8-bit anyway",
    }
    (mean,) = [row for row in placed(resnet(), CUDA).decisions if row.op_type == "GlobalAveragePool"]
    assert mean.is_int8 and mean.reason == "an 8-bit convolution makes its input"


def test_openvino_quantizes_inputs_only():
    placement = placed(resnet(), OPENVINO)
    assert placement.values == {"x", "r0", "r1", "c2", "r2", "mean"}
    assert placement.uses[("Add_5", 0)] == "c2" and placement.uses[("Add_5", 1)] == "r0"
    assert placement.uses[("MaxPool_7", 0)] == "r2" and placement.uses[("Flatten_11", 0)] == "mean"


def test_tensorrt_quantizes_only_the_skip_branch_of_a_residual_sum():
    placement = placed(resnet(), TENSORRT)
    assert ("Add_5", 1) in placement.uses and ("Add_5", 0) not in placement.uses


@pytest.mark.parametrize("order", ["a, b", "b, a"])
def test_of_two_convolutions_tensorrt_reads_back_the_one_computed_first(order: str):
    body = f"{conv('a', 'x', 'w')} {conv('b', 'x', 'v')} y = Add({order})"
    placement = placed(map_net(body), TENSORRT)
    index = order.split(", ").index("a")
    assert ("Add_2", index) in placement.uses and ("Add_2", 1 - index) not in placement.uses


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_sums_that_are_not_residual_stay_float(target: Target):
    body = f"r = Relu(x) s = Add(r, x) {conv('a', 's', 'w')} t = Add(a, a) {conv('y', 't', 'v')}"
    placement = placed(map_net(body), target)
    assert int8_nodes(placement) == {"Conv_2", "Conv_4"}
    assert reason(placement, "Add_1") == "not the residual sum of an 8-bit convolution"
    assert reason(placement, "Add_3") == "adds a constant, or a value to itself"


def test_one_number_for_all_pixels_of_a_channel_is_no_skip_connection():
    body = f"{conv('a', 'x', 'w')} m = GlobalAveragePool(x) t = Add(a, m) {conv('y', 't', 'v')}"
    placement = placed(map_net(body), CUDA)
    assert not {use for use in placement.uses if use[0] == "Add_2"}
    assert reason(placement, "Add_2") == "adds one number to all pixels of a channel"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_node_has_a_reason(target: Target):
    body = f"""{conv("a", "x", "w")} e = Exp(a) p = MaxPool<kernel_shape=[1,1]>(e)
    q = AveragePool<kernel_shape=[1,1]>(p) c = Concat<axis=1>(q, p) d = Transpose<perm=[0,1,3,2]>(c)
    y = Slice(d, begin, end, axis)"""
    constants = {"begin": np.array([0]), "end": np.array([8]), "axis": np.array([1])}
    used = weights({"w": SQUARE["w"]}) | constants
    model = net(f"net (float[N,8,6,6] x) => (float[N,8,6,6] y) {{ {body} }}", used)
    placement = placed(model, target)
    assert [d.node for d in placement.decisions] == [node.name for node in model.graph.graph]
    assert all(d.reason for d in placement.decisions)


def test_max_pool_and_reshapes_share_the_grid_of_their_input():
    groups = placed(resnet(), ORT).groups
    assert {"r2", "pool"} in groups and {"mean", "flat"} in groups


def test_a_concatenation_shares_one_grid_over_all_its_inputs():
    body = f"""{conv("a", "x", "w")} {conv("b", "x", "v")} c = Concat<axis=2>(a, b)
    p = MaxPool<kernel_shape=[2,1], strides=[2,1]>(c) {conv("y", "p", "u")}"""
    model = map_net(body)
    assert placed(model, ORT).groups == (frozenset({"a", "b", "c", "p"}),)
    for target in (OPENVINO, TENSORRT):
        placement = placed(model, target)
        assert placement.groups == (frozenset({"a", "b"}),)
        assert "c" not in placement.values and "p" not in placement.values
        assert placement.uses[("Concat_2", 0)] == "a" and placement.uses[("Concat_2", 1)] == "b"


def test_a_concatenation_with_a_float_input_is_not_joined():
    body = f"{conv('a', 'x', 'w')} e = Exp(a) c = Concat<axis=2>(a, e) {conv('y', 'c', 'u')}"
    placement = placed(map_net(body), ORT)
    assert "Concat_2" not in int8_nodes(placement) and "c" in placement.values
    assert not placement.groups


def test_quantization_moves_above_value_preserving_operators_when_every_reader_wants_it():
    body = f"""e = Exp(x) p = MaxPool<kernel_shape=[1,1]>(e) t = Transpose<perm=[0,1,3,2]>(p)
    {conv("a", "t", "w")} {conv("b", "t", "v")} s = Mul(a, b) y = Exp(s)"""
    for target in (OPENVINO, TENSORRT):
        placement = placed(map_net(body), target)
        assert placement.values == {"e"} and placement.uses == {("MaxPool_1", 0): "e"}


@pytest.mark.parametrize(
    "tail",
    [f"{conv('a', 't', 'w')} y = Add(a, t)", f"{conv('y', 't', 'w')}"],
    ids=["a float reader", "an output of the model"],
)
def test_quantization_stays_where_another_reader_wants_the_float(tail: str):
    outputs = "float[N,8,6,6] y" + (", float[N,8,6,6] t" if "y = Conv" in tail else ", float[N,8,6,6] z")
    extra = "" if "y = Conv" in tail else " z = Exp(t)"
    body = f"e = Exp(x) t = Transpose<perm=[0,1,3,2]>(e) {tail}{extra}"
    text = f"net (float[N,8,6,6] x) => ({outputs}) {{ {body} }}"
    placement = placed(net(text, weights({"w": SQUARE["w"]})), OPENVINO)
    assert "t" in placement.values and "e" not in placement.values


def test_an_input_that_two_convolutions_read_is_quantized_once():
    body = f"{conv('a', 'x', 'w')} {conv('b', 'x', 'v')} s = Mul(a, b) y = Exp(s)"
    for target in TARGETS:
        placement = placed(map_net(body), target)
        assert placement.uses[("Conv_0", 0)] == placement.uses[("Conv_1", 0)] == "x"


def test_a_convolution_that_makes_an_output_quantizes_it_for_onnx_runtime():
    model = net(CONV, weights({"w": (8, 3, 3, 3), "b": (8,)}))
    assert placed(model, ORT).outputs == {"y"}
    assert placed(model, OPENVINO).outputs == placed(model, TENSORRT).outputs == frozenset()


def test_for_onnx_runtime_only_what_an_8_bit_kernel_makes_is_rounded_for_float_readers_and_outputs():
    text = """net (float[N,8,6,6] x) => (float[N,8,6,6] y, float[N,8,6,6] e) {
    e = Exp(x) h = Conv<pads=[1,1,1,1]>(e, w) f = Exp(e) g = Exp(h) a = Conv<pads=[1,1,1,1]>(h, v)
    b = Mul(f, g) y = Mul(a, b) }"""
    placement = placed(net(text, weights({"w": SQUARE["w"], "v": SQUARE["v"]})), ORT)
    assert placement.uses[("Exp_3", 0)] == "h" and ("Exp_2", 0) not in placement.uses
    assert placement.uses[("Conv_1", 0)] == "e" and placement.outputs == frozenset()


def test_pools_and_sums_that_make_an_output_leave_it_float():
    body = f"{conv('a', 'x', 'w')} s = Add(a, x) y = AveragePool<kernel_shape=[1,1]>(s)"
    placement = placed(map_net(body), ORT)
    assert placement.outputs == frozenset()
    assert reason(placement, "AveragePool_2") == "its result is an output of the model"


GELU = """p = Mul(c, c) q = Mul(p, c) k = Mul(q, f) i = Add(c, k) j = Mul(i, f) t = Tanh(j) g = Add(t, f)
    r = Mul(c, g)"""
SNAKE = "p = Mul(c, f) q = Sin(p) k = Mul(q, q) r = Add(c, k)"


@pytest.mark.parametrize("target", [ORT, TENSORRT, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("activation", [GELU, SNAKE], ids=["GELU spelled with Tanh", "Snake"])
def test_a_sum_inside_an_activation_is_no_residual_sum(activation: str, target: Target):
    body = f"{conv('c', 'x', 'w')} {activation} {conv('y', 'r', 'v')}"
    placement = placed(map_net(body, SQUARE | {"f": ()}), target)
    assert not any(name.startswith("Add") for name in int8_nodes(placement))
    assert placement.values == {"x", "r"} | ({"c", "y"} if target is ORT else set())


def test_a_sum_of_two_convolutions_in_a_row_is_residual():
    body = f"{conv('c', 'x', 'w')} r = Relu(c) {conv('d', 'r', 'v')} a = Add(c, d) {conv('y', 'a', 'u')}"
    assert "Add_3" in int8_nodes(placed(map_net(body), ORT))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"exclude": ("Conv_2",)}, {"Conv_2"}),
        ({"exclude": ("Conv_*",)}, {"Conv_0", "Conv_2", "Conv_4", "Add_5", "Conv_8"}),
        ({"exclude": ("Conv_[02]", "Gemm_12")}, {"Conv_0", "Conv_2", "Gemm_12"}),
        ({"exclude_types": ("Gemm",)}, {"Gemm_12"}),
    ],
)
def test_excluded_layers_stay_float(options: dict, kept: set[str]):
    model = resnet()
    before, after = placed(model, ORT), placed(model, ORT, **options)
    assert kept <= int8_nodes(before) and not kept & int8_nodes(after)
    assert all((node, 1) not in after.weights for node in kept)
    excluded = next(iter(kept - {"Add_5"}))
    assert reason(after, excluded).startswith("excluded by")


def test_a_name_with_the_characters_of_a_glob_is_taken_as_it_is():
    model = resnet()
    next(node for node in model.graph.graph if node.name == "Conv_0").name = "conv[0]"
    assert "conv[0]" not in int8_nodes(placed(model, ORT, exclude=("conv[0]",)))


def test_a_layer_answers_to_the_name_of_a_node_that_was_folded_into_it():
    text = """net (float[N,3,8,8] x) => (float[N,8,8,8] y) {
    c = Conv<pads=[1,1,1,1]>(x, w) y = BatchNormalization(c, g, b, m, s) }"""
    arrays = weights({"w": (8, 3, 3, 3), "g": (8,), "b": (8,), "m": (8,)}) | {"s": np.ones(8, np.float32)}
    model = net(text, arrays)
    assert [node.op_type for node in model.graph.graph] == ["Conv"]
    assert int8_nodes(placed(model, OPENVINO, exclude=("BatchNormalization_1",))) == set()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"exclude": ("Conv_1",)}, "Conv_"),
        ({"exclude": ("Gem_12",)}, "'Gemm_12'"),
        ({"exclude": ("nothing like it",)}, "quantrt inspect MODEL.onnx --layers"),
        ({"exclude_types": ("Convv",)}, "'Conv'"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(options: dict, hint: str):
    with pytest.raises(UsageError) as caught:
        placed(resnet(), ORT, **options)
    assert hint in str(caught.value)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_layers_of_a_gate_stay_float(target: Target):
    body = f"""{conv("a", "x", "w")} p = GlobalAveragePool(a) g = Conv(p, one) r = Relu(g) h = Conv(r, two)
    s = Sigmoid(h) m = Mul(a, s) {conv("y", "m", "v")}"""
    shapes = SQUARE | {"one": (2, 8, 1, 1), "two": (8, 2, 1, 1)}
    placement = placed(map_net(body, shapes), target)
    assert {"Conv_2", "Conv_4"}.isdisjoint(int8_nodes(placement))
    assert {"Conv_0", "Conv_7"} <= int8_nodes(placement)
    assert "squeeze-and-excite" in reason(placement, "Conv_2")
    stored = {use for use in placement.weights if use[0] in ("Conv_2", "Conv_4")}
    assert stored == (set() if target is TENSORRT else {("Conv_2", 1), ("Conv_4", 1)})
    kept = placed(map_net(body, shapes), target, exclude=("Conv_2",))
    assert ("Conv_2", 1) not in kept.weights, "whoever excludes a layer wants its own weights"


ATTENTION = """net (float[N,4,8] x) => (float[N,4,8] y) {
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose<perm=[0,2,1]>(k)
    s = MatMul(q, t) p = ACT s z = MatMul(p, v) y = MatMul(z, wo) }"""


def attention(activation: str):
    text = ATTENTION.replace("ACT s", f"{activation}(s)")
    return net(text, weights(dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8))))


@pytest.mark.parametrize("target", [OPENVINO, TENSORRT], ids=["openvino", "tensorrt"])
def test_products_of_softmax_attention_are_quantized_and_those_of_linear_attention_are_not(target: Target):
    softmax, linear = placed(attention("Softmax"), target), placed(attention("Relu"), target)
    assert {"MatMul_4", "MatMul_6"} <= int8_nodes(softmax)
    assert ("MatMul_6", 0) in softmax.uses and ("MatMul_6", 1) in softmax.uses
    assert {"MatMul_4", "MatMul_6"}.isdisjoint(int8_nodes(linear))
    assert "ranges too wide" in reason(linear, "MatMul_4")
    assert {"MatMul_0", "MatMul_1", "MatMul_2", "MatMul_7"} <= int8_nodes(linear)


def test_onnx_runtime_leaves_products_of_activations_float():
    assert "MatMul_4" not in int8_nodes(placed(attention("Softmax"), ORT))


def test_openvino_wants_products_of_activations_on_symmetric_grids():
    """Those with a constant weight, of x and z, keep zero points."""
    placement = placed(attention("Softmax"), OPENVINO)
    assert placement.symmetric == {"q", "k", "p", "v"}
    assert {"x", "z"} <= placement.values
    assert placed(resnet(), TENSORRT).symmetric == frozenset()


@pytest.mark.parametrize(
    ("text", "shape", "axis"),
    [
        ("Gemm<transB=1>(x, w)", (5, 8), 0),
        ("Gemm(x, w)", (8, 5), 1),
        ("MatMul(x, w)", (8, 5), 1),
        ("MatMul(x, w)", (1, 8, 5), None),
        ("MatMul(x, w)", (8,), None),
    ],
)
def test_the_axis_of_the_output_channels(text: str, shape: tuple[int, ...], axis: int | None):
    model = net(f"net (float[N,8] x) => (float[?] y) {{ y = {text} }}", weights({"w": shape}))
    placement = placed(model, OPENVINO)
    (use,) = placement.weights
    assert placement.weights[use] == axis


def test_the_axis_of_convolutions():
    text = """net (float[N,4,8,8] x) => (float[?,?,?,?] y) {
    a = Conv<group=4>(x, w) b = ConvTranspose(a, v) y = Exp(b) }"""
    model = net(text, weights({"w": (8, 1, 3, 3), "v": (8, 6, 3, 3)}))
    assert placed(model, OPENVINO).weights == {("Conv_0", 1): 0, ("ConvTranspose_1", 1): 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y = Gemm<transA=1>(x, w)", "transA"),
        ("y = Gemm<alpha=2.0>(x, w)", "alpha"),
        ("y = Gemm<beta=0.5>(x, w, b)", "beta"),
        ("y = MatMul(w, x)", "first input"),
        ("h = Exp(x) y = MatMul(x, h)", "outside softmax attention"),
        ("i = Cast<to=6>(x) y = MatMul(i, wi)", "not float32"),
    ],
)
@pytest.mark.parametrize("target", [OPENVINO, TENSORRT], ids=["openvino", "tensorrt"])
def test_products_without_an_8_bit_kernel_say_why(target: Target, text: str, why: str):
    arrays = weights({"w": (8, 8), "b": (8,)}) | {"wi": np.ones((8, 8), np.int32)}
    used = {name: array for name, array in arrays.items() if f"{name}," in text or f"{name})" in text}
    kind = "int32" if "wi" in text else "float"
    model = net(f"net (float[8,8] x) => ({kind}[?,?] y) {{ {text} }}", used)
    placement = placed(model, target)
    assert not int8_nodes(placement)
    assert why in placement.decisions[-1].reason


def test_a_bias_is_planned_for_where_there_is_none_yet():
    body = conv("y", "x", "w")
    assert placed(map_net(body), ORT).biases == {("Conv_0", 2): (("Conv_0", 0), ("Conv_0", 1))}
    assert placed(map_net(body), OPENVINO).biases == {}


def test_operators_of_other_domains_stay_float():
    text = """<ir_version: 10, opset_import: ["" : 17, "other" : 1]>
    net (float[N,8,6,6] x) => (float[N,8,6,6] y) { y = other.Conv(x) }"""
    import onnx.parser
    import onnx_ir as ir

    from quantrt.model.load import make_model

    model = make_model(ir.from_proto(onnx.parser.parse_model(text)))
    assert not int8_nodes(placed(model, ORT))


def test_a_model_that_is_quantized_already_is_left_alone():
    text = """net (float[N,8] x) => (float[N,8] y) {
    q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w) }"""
    arrays = {"s": np.float32(0.1), "z": np.uint8(3), "w": np.ones((8, 8), np.float32)}
    model = net(text, {name: np.asarray(array) for name, array in arrays.items()})
    assert is_quantized(model.graph.graph) and not is_quantized(resnet().graph.graph)
    placement = placed(model, OPENVINO)
    assert not placement.uses and not placement.weights
    assert {d.reason for d in placement.decisions} == {"the model is quantized already"}


def test_an_opset_without_quantize_linear_leaves_everything_float():
    text = "net (float[N,8,6,6] x) => (float[N,8,6,6] y) { h = Conv(x, w) y = Hardmax(h) }"
    model = net(text, weights({"w": (8, 8, 1, 1)}), opset=9)
    assert model.graph.opset_imports[""] == 9
    placement = placed(model, ORT)
    assert not placement.uses and "opset 9" in placement.decisions[0].reason


def test_a_value_that_a_subgraph_reads_too_keeps_its_quantization_below():
    text = """net (float[N,8,6,6] x, bool c) => (float[N,8,6,6] y) {
    e = Exp(x) t = Transpose<perm=[0,1,3,2]>(e) a = Conv<pads=[1,1,1,1]>(t, w)
    i = If(c) <then_branch = yes () => (float[N,8,6,6] p) { p = Exp(t) },
               else_branch = no () => (float[N,8,6,6] q) { q = Neg(t) }>
    y = Add(a, i) }"""
    model = net(text, weights({"w": SQUARE["w"]}))
    placement = placed(model, OPENVINO)
    assert ("Conv_2", 0) in placement.uses and placement.uses[("Conv_2", 0)] == "t"


def test_unknown_targets_name_the_nearest():
    assert target_named("ort") is ORT
    with pytest.raises(UsageError) as caught:
        target_named("openvno")
    assert "'openvino'" in str(caught.value)


def test_the_net_of_these_tests_has_the_nodes_they_name():
    assert [node.op_type for node in nodes(resnet().graph, "Gemm")] == ["Gemm"]
    assert RESNET.count("Conv<") == 4
