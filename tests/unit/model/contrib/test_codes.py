# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's quantized operators and the standard ones they become compute the same, in ONNX Runtime."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from quantrt.ir.clone import clone
from quantrt.model.passes.spell.spell_contrib import spell_contrib

CODES = {
    "s": np.asarray(0.02, np.float32),
    "s1": np.asarray([0.03], np.float32),
    "s2": np.asarray(0.011, np.float32),
    "z": np.asarray(120, np.uint8),
    "z1": np.asarray([3], np.uint8),
    "z2": np.asarray(7, np.uint8),
    "i": np.asarray(-5, np.int8),
    "w": np.arange(-28, 28, dtype=np.int8).reshape(8, 7),
    "ws": np.linspace(0.001, 0.01, 7, dtype=np.float32),
    "wz": np.zeros(7, np.int8),
    "b": np.arange(-3000, 4000, 1000, dtype=np.int32),
    "none": np.asarray(0.0, np.float32),
    "wide": np.asarray(0.0003, np.float32),
    "half": np.asarray(30000, np.uint16),
}
ROWS = "net (uint8[4,8] x, uint8[4,8] v) => (uint8[4,8] y)"
IMAGE = "net (uint8[2,3,6,6] x) => (uint8 y)"
M = "com.microsoft"


def graph_of(text: str, arrays=None, opset: int = 17) -> ir.Model:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "{M}" : 1]> {text}')
    for name, array in {**CODES, **(arrays or {})}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    return ir.from_proto(model)


def run(graph: ir.Model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(graph).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def check(graph: ir.Model, inputs, *, most: int = 1, share: float = 0.02):
    """Nothing of the domain is left; codes differ at ties alone, by one."""
    spelled = clone(graph)
    count = spell_contrib(spelled)
    assert count == sum(node.domain == M for node in graph.graph)
    assert all(node.domain == "" for node in spelled.graph)
    onnx.checker.check_model(ir.to_proto(spelled))
    for want, got in zip(run(graph, inputs), run(spelled, inputs), strict=True):
        assert want.dtype == got.dtype
        distance = np.abs(want.astype(np.float64) - got.astype(np.float64))
        assert distance.max() <= most
        assert (distance > 0).mean() <= share


def codes(rng, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    "text",
    [
        f"{ROWS} {{ y = {M}.QLinearAdd(x, s, z, v, wide, z2, s2, z2) }}",
        f"{ROWS} {{ y = {M}.QLinearMul(x, s, z, v, wide, z2, s2, z2) }}",
        f"{ROWS} {{ a = {M}.QLinearConcat<axis=0>(s2, z2, x, s, z, v, s1, z1) y = Slice(a, n0, n4, n0) }}",
    ],
)
def test_two_inputs(text: str, rng):
    arrays = {"n0": np.zeros(1, np.int64), "n4": np.full(1, 4, np.int64)}
    check(graph_of(text, arrays), {"x": codes(rng, 4, 8), "v": codes(rng, 4, 8)})


@pytest.mark.parametrize(
    "operator",
    [
        "QLinearSigmoid(x, s, z, s2, z2)",
        "QLinearLeakyRelu<alpha=0.1>(x, s, z, s2, z2)",
        "QLinearSoftmax<axis=1, opset=13>(x, s, z, s2, z2)",
        "QLinearGlobalAveragePool(x, s, z, s2, z2)",
        "QLinearAveragePool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,0,0]>(x, s, z, s2, z2)",
    ],
)
def test_one_input(operator: str, rng):
    # ONNX Runtime's softmax cuts its codes off where the standard's are rounded.
    share = 0.4 if "Softmax" in operator else 0.02
    check(graph_of(f"{IMAGE} {{ y = {M}.{operator} }}"), {"x": codes(rng, 2, 3, 6, 6)}, share=share)


@pytest.mark.parametrize("ending", ["s2, z2", ""])
def test_gemm_in_codes_and_in_floats(ending: str, rng):
    kind = "uint8" if ending else "float"
    text = f"net (uint8[4,8] x) => ({kind}[4,7] y) {{ y = {M}.QGemm<alpha=0.5>(x, s, z, w, ws, wz, b{', ' if ending else ''}{ending}) }}"  # noqa: E501
    check(graph_of(text), {"x": codes(rng, 4, 8)}, most=1 if ending else 1e-4, share=1.0)


def test_pairs_of_16_bits_raise_the_opset(rng):
    text = f"net (float[4,8] x) => (float[4,8] y) {{ q = {M}.QuantizeLinear(x, wide, half) y = {M}.DequantizeLinear(q, wide, half) }}"  # noqa: E501
    graph = graph_of(text)
    check(graph, {"x": rng.standard_normal((4, 8)).astype(np.float32)}, most=0)
    spell_contrib(graph)
    assert graph.opset_imports[""] == 21


@pytest.mark.parametrize(("has_zeros", "k"), [(True, 64), (False, 64), (True, 40)])
def test_products_by_codes_in_blocks(has_zeros: bool, k: int, rng):
    n, block = 5, 32
    blocks = -(-k // block)
    arrays = {
        "packed": rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8),
        "scales": rng.uniform(0.01, 0.1, (n * blocks)).astype(np.float32),
        "zeros": rng.integers(0, 256, (n * -(-blocks // 2))).astype(np.uint8),
    }
    inputs = "x, packed, scales" + (", zeros" if has_zeros else "")
    text = f"net (float[3,{k}] x) => (float[3,{n}] y) {{ y = {M}.MatMulNBits<K={k}, N={n}, bits=4, block_size={block}>({inputs}) }}"  # noqa: E501
    check(graph_of(text, arrays), {"x": rng.standard_normal((3, k)).astype(np.float32)}, most=1e-4, share=1.0)


def test_what_is_not_known_stays_whole(rng):
    """An image whose channels lie innermost, and a softmax over several axes."""
    text = f"{IMAGE} {{ y = {M}.QLinearGlobalAveragePool<channels_last=1>(x, s, z, s2, z2) }}"
    graph = graph_of(text)
    assert spell_contrib(graph) == 0
    assert [use.node.op_type for use in graph.graph.inputs[0].uses()] == ["QLinearGlobalAveragePool"]
    assert (
        spell_contrib(graph_of(f"{IMAGE} {{ y = {M}.QLinearSoftmax<axis=1, opset=12>(x, s, z, s2, z2) }}"))
        == 0
    )
