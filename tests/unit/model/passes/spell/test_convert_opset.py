# SPDX-License-Identifier: Apache-2.0
"""Every operator that is said to convert to opset 13 gives the same result there."""

import numpy as np
import pytest

from quantrt.ir.clone import clone
from quantrt.ir.sources import sources_of
from quantrt.model.passes.spell.convert_opset import CONVERTIBLE, convert_opset
from tests.unit.model.check_pass import check_pass, model_of, op_types, random_feeds, run

# Plain operators of one float input.
UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Flatten Floor GlobalAveragePool
GlobalMaxPool HardSigmoid Identity LeakyRelu Log LogSoftmax MeanVarianceNormalization Neg Reciprocal Relu Selu
Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh Transpose Dropout ReduceL1 ReduceL2
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare""".split()
NEW_IN_9 = "Acosh Asinh Atanh Cosh Erf MeanVarianceNormalization Sign Sinh".split()
BINARY = "Add Div Max Mean Min Mul Pow Sub Sum MatMul".split()

# name: (body, opsets; weights by name).
OTHERS = {
    "reductions": (
        "a = ReduceMean<axes=[2,3],keepdims=0>(x) b = ReduceSum<axes=[1]>(a) y = ReduceMax<axes=[0]>(b)",
        "7 8 9 10 11 12",
    ),
    "Softmax first axis": ("y = Softmax<axis=1>(x)", "7 8 9 10 11 12"),
    "Softmax last axis": ("y = Softmax<axis=3>(x)", "7 8 9 10 11 12"),
    "LogSoftmax middle axis": ("y = LogSoftmax<axis=2>(x)", "7 8 9 10 11 12"),
    "Squeeze": ("r = ReduceMean<axes=[2,3]>(x) y = Squeeze<axes=[2,3]>(r)", "7 8 9 10 11 12"),
    "Squeeze all": ("r = ReduceMean<axes=[2,3]>(x) y = Squeeze(r)", "7 8 9 10 11 12"),
    "Unsqueeze": ("y = Unsqueeze<axes=[0,3]>(x)", "7 8 9 10 11 12"),
    "Split": ("a, b = Split<axis=1,split=[1,3]>(x) y = Concat<axis=1>(b, a)", "7 8 9 10 11 12"),
    "Split evenly": ("a, b = Split<axis=1>(x) y = Sub(a, b)", "7 8 9 10 11 12"),
    "Clip": ("y = Clip<min=0.0,max=0.5>(x)", "7 8 9 10"),
    "Clip from below": ("y = Clip<min=0.0>(x)", "7 8 9 10"),
    "Clip with inputs": ("y = Clip(x, zero, half)", "11 12"),
    "Pad": ('y = Pad<mode="constant",pads=[0,0,1,1,0,0,2,2],value=1.5>(x)', "7 8 9 10"),
    "Pad reflect": ('y = Pad<mode="reflect",pads=[0,0,1,1,0,0,2,2]>(x)', "7 8 9 10"),
    "Pad with inputs": ('y = Pad<mode="edge">(x, pads)', "11 12"),
    "Slice": ("y = Slice<axes=[2,3],starts=[1,0],ends=[4,-1]>(x)", "7 8 9"),
    "Slice with inputs": ("y = Slice(x, starts, ends, axes)", "10 11 12"),
    "Upsample nearest": ('y = Upsample<mode="nearest">(x, up)', "9"),
    "Upsample nearest, uneven": ('y = Upsample<mode="nearest">(x, uneven)', "9"),
    "Upsample nearest, scales written": (
        'y = Upsample<mode="nearest",scales=[1.0,1.0,3.0,1.5]>(x)',
        "7 8",
    ),
    "several Upsample, scales written": (
        'a = Upsample<mode="nearest",scales=[1.0,1.0,2.0,2.0]>(x) b = Relu(a)'
        ' c = Upsample<mode="nearest",scales=[1.0,1.0,3.0,1.5]>(b) y = Tanh(c)',
        "7 8",
    ),
    "Upsample linear, scales written": ('y = Upsample<mode="linear",scales=[1.0,1.0,2.0,3.0]>(x)', "7 8"),
    "Upsample linear": ('y = Upsample<mode="linear">(x, up)', "9"),
    "Resize nearest": ('y = Resize<mode="nearest">(x, up)', "10"),
    "Resize nearest, smaller": ('y = Resize<mode="nearest">(x, down)', "10"),
    "Resize linear": ('y = Resize<mode="linear">(x, up)', "10"),
    "Resize linear, smaller": ('y = Resize<mode="linear">(x, down)', "10"),
    "Resize 11": (
        'y = Resize<mode="linear",coordinate_transformation_mode="align_corners">(x, none, up)',
        "11 12",
    ),
    "Conv": ("y = Conv<pads=[1,1,1,1],group=2>(x, w)", "7 8 9 10 11 12"),
    "ConvTranspose": ("y = ConvTranspose<strides=[2,2]>(x, wt)", "7 8 9 10 11 12"),
    "BatchNormalization": ("y = BatchNormalization(x, c, c, c, c)", "7 8 9 10 11 12"),
    "InstanceNormalization": ("y = InstanceNormalization(x, c, c)", "7 8 9 10 11 12"),
    "LRN": ("y = LRN<size=3>(x)", "7 8 9 10 11 12"),
    "LpNormalization": ("y = LpNormalization<axis=1>(x)", "7 8 9 10 11 12"),
    "PRelu": ("y = PRelu(x, slope)", "7 8 9 10 11 12"),
    "MaxPool": ("y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)", "7 8 9 10 11 12"),
    "AveragePool": ("y = AveragePool<kernel_shape=[2,2],strides=[2,2],pads=[1,1,0,0]>(x)", "7 8 9 10 11 12"),
    "Reshape": ("y = Reshape(x, shape)", "7 8 9 10 11 12"),
    "Gemm": ("f = Flatten(x) y = Gemm<transB=1,alpha=0.5>(f, m, three)", "7 8 9 10 11 12"),
    "Gather": ("y = Gather<axis=1>(x, index)", "7 8 9 10 11 12"),
    "Expand, Tile": ("e = Expand(x, shape5) y = Tile(e, shape5)", "8 9 10 11 12"),
    "Shape, Size": ("s = Shape(x) n = Size(x) a = Mul(s, n) y = Cast<to=1>(a)", "7 8 9 10 11 12"),
    "ConstantOfShape": ("s = Shape(x) a = ConstantOfShape(s) y = Add(x, a)", "9 10 11 12"),
    "comparisons": (
        "a = Greater(x, zero) b = Less(x, half) c = And(a, b) d = Or(c, a) e = Not(d) y = Where(e, x, half)",
        "9 10 11 12",
    ),
    "Equal": ("i = Cast<to=7>(x) a = Equal(i, i0) y = Cast<to=1>(a)", "7 8 9 10 11 12"),
    "or equal": (
        "a = GreaterOrEqual(x, zero) b = LessOrEqual(x, half) c = And(a, b) y = Cast<to=1>(c)",
        "12",
    ),
    "IsNaN": ("a = IsNaN(x) y = Cast<to=1>(a)", "9 10 11 12"),
    "TopK": ("y, i = TopK<k=2,axis=1>(x)", "7 8 9"),
    "TopK with inputs": ("y, i = TopK<axis=1>(x, two)", "10 11 12"),
    "ArgMax, ArgMin, OneHot": (
        "a = ArgMax<axis=1>(x) b = ArgMin<axis=1>(x) s = Add(a, b) y = OneHot(s, seven, values)",
        "9 10 11 12",
    ),
    "blocks": ("a = DepthToSpace<blocksize=2>(x) y = SpaceToDepth<blocksize=2>(a)", "7 8 9 10 11 12"),
    "Constant": ("a = Constant<value=float[1] {2}>() y = Mul(x, a)", "7 8 9 10 11 12"),
    "NonZero": ("n = NonZero(x) y = Cast<to=1>(n)", "9 10 11 12"),
    "CumSum, Round": ("a = CumSum(x, i0) y = Round(a)", "11 12"),
    "Mod": ("y = Mod<fmod=1>(x, half)", "10 11 12"),
    "GatherND": ("y = GatherND(x, pair)", "11 12"),
    "GatherElements": ("y = GatherElements<axis=0>(x, corner)", "11 12"),
    "ScatterND": ("y = ScatterND(x, place, one)", "11 12"),
    "Range": ("a = Range(zero, two_f, half) y = ReduceSum<axes=[0]>(a) z = Neg(x)", "11 12"),
    "Einsum, Celu": ('e = Einsum<equation="abcd,abcd->acd">(x, x) y = Celu(e)', "12"),
    "LSTM": ("t = Reshape(x, sequence) y, h, c1 = LSTM<hidden_size=2>(t, lw, lr)", "7 8 9 10 11 12"),
    "GRU": ("t = Reshape(x, sequence) y, h = GRU<hidden_size=2>(t, gw, gr)", "7 8 9 10 11 12"),
    "QuantizeLinear": ("q = QuantizeLinear(x, half, point) y = DequantizeLinear(q, half, point)", "10 11 12"),
}
CASES = (
    {name: (f"y = {name}(x)", "9 10 11 12" if name in NEW_IN_9 else "7 8 9 10 11 12") for name in UNARY}
    | {name: (f"y = {name}(x, x)", "7 8 9 10 11 12") for name in BINARY}
    | OTHERS
)


def constants(rng):
    """One constant for every name the bodies use."""
    floats = {"w": (4, 2, 3, 3), "wt": (4, 3, 2, 2), "m": (3, 144), "three": (3,), "slope": (4, 1, 1)}
    floats |= {"lw": (1, 8, 36), "lr": (1, 8, 2), "gw": (1, 6, 36), "gr": (1, 6, 2)}
    numbers = {"zero": 0.0, "half": 0.5, "two_f": 2.0}
    lists = {"up": [1, 1, 2, 3], "uneven": [1, 1, 3, 1.5], "down": [1, 1, 0.5, 0.7], "none": [], "one": [9]}
    integers = {
        "pads": [0, 0, 1, 1, 0, 0, 2, 2],
        "starts": [1, 0],
        "ends": [4, -1],
        "axes": [2, 3],
        "shape": [0, -1],
        "shape5": [2, 1, 1, 1, 1],
        "index": [0, 2],
        "i0": 0,
        "two": [2],
        "seven": [7],
        "pair": [[0, 1]],
        "corner": [[[[0]]]],
        "place": [[0, 1, 0, 0]],
        "sequence": [2, 4, 36],
    }
    return (
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in floats.items()}
        | {name: np.float32(value) for name, value in numbers.items()}
        | {name: np.array(value, np.float32) for name, value in lists.items()}
        | {name: np.array(value, np.int64) for name, value in integers.items()}
        | {"c": rng.uniform(0.5, 2, 4).astype(np.float32), "values": np.array([0, 1], np.float32)}
        | {"point": np.uint8(128)}
    )


def old_model(body, opset, rng):
    """The model with just the constants its body names."""
    named = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    weights = {name: array for name, array in constants(rng).items() if name in named}
    for name in ("c",):  # a node of some bodies is called like a constant
        if f"{name} = " in body:
            weights.pop(name, None)
    return model_of(body, inputs="float[2,4,6,6] x", opset=opset, weights=weights)


@pytest.mark.parametrize(
    ("case", "opset"), [(case, int(opset)) for case in CASES for opset in CASES[case][1].split()]
)
def test_it_computes_the_same_at_opset_13(case, opset, rng):
    model = old_model(CASES[case][0], opset, rng)
    converted = check_pass(convert_opset, model, rng, changes=1, rtol=1e-6, atol=1e-6)
    assert converted.opset_imports[""] == 13


def test_every_convertible_operator_has_a_case(rng):
    seen = {
        node.op_type
        for body, opsets in CASES.values()
        for node in old_model(body, int(opsets.split()[0]), rng).graph
    }
    assert seen >= CONVERTIBLE


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_a_new_model_stays_as_it_is(opset, rng):
    model = model_of("y = Relu(x)", opset=opset)
    assert check_pass(convert_opset, model, rng, changes=0, rtol=0, atol=0).opset_imports[""] == opset


OBSTACLES = {
    "control flow": "y = If (yes) <then_branch = a () => (float[...] p) { p = Relu(x) },"
    " else_branch = b () => (float[...] q) { q = Neg(x) }>",
    "an operator that converts wrongly": "y = Hardmax(x)",
    "a resize of two kinds": 'y = Resize<mode="nearest">(x, both)',
    "a computed resize": 't = Mul(both, both) y = Resize<mode="nearest">(x, t)',
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_an_obstacle_keeps_the_opset(case, rng):
    weights = {"yes": np.array(True), "both": np.array([1, 1, 2, 0.5], np.float32)}
    named = {name: array for name, array in weights.items() if name in OBSTACLES[case]}
    model = model_of(OBSTACLES[case], opset=10, weights=named)
    assert check_pass(convert_opset, model, rng, changes=0, rtol=0, atol=0).opset_imports[""] == 10


@pytest.mark.parametrize("opset", [7, 8])
def test_statistics_for_every_pixel_keep_the_opset(opset, rng):
    pixels = {"p": rng.uniform(0.5, 2, (4, 6, 6)).astype(np.float32)}
    model = model_of("y = BatchNormalization<spatial=0>(x, p, p, p, p)", opset=opset, weights=pixels)
    converted = clone(model)
    assert convert_opset(converted) == 0 and converted.opset_imports[""] == opset


def test_weights_symbols_and_sources_are_kept(rng):
    model = model_of(
        "[one] c = Conv(x, w) [two] s = Softmax(c) r = ReduceMean<axes=[1]>(s) y = Squeeze<axes=[1]>(r)",
        inputs="float[batch,2,6,6] x",
        opset=9,
        weights={"w": rng.standard_normal((5, 2, 3, 3)).astype(np.float32)},
    )
    model.graph[0].metadata_props["quantrt.sources"] = "zero"
    converted = clone(model)
    assert convert_opset(converted) == 1
    assert str(converted.graph.inputs[0].shape) == str(model.graph.inputs[0].shape)
    assert sources_of(converted.graph[0]) == ("zero",)
    old, new = model.graph.initializers["w"].const_value, converted.graph.initializers["w"].const_value
    assert new is old
    assert "Constant" not in op_types(converted)
    feeds = random_feeds(model, rng)
    np.testing.assert_allclose(run(converted, feeds)[0], run(model, feeds)[0], rtol=1e-6, atol=1e-6)
