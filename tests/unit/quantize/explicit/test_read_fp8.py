# SPDX-License-Identifier: Apache-2.0
"""Models that came with FP8 pairs: which edges read codes, what stays a rounding, and the same results."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig
from quantrt.dtypes import FP8, INT8
from quantrt.gpu import gpu_named
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.quantize.explicit.read import read, target_of_own
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples

PRODUCT = """net (float[N,16] x) => (float[N,8] y) {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  w = DequantizeLinear<axis=0>(codes, ws, wz)
  wt = Transpose<perm=[1,0]>(w)
  y = MatMul(d, wt)
}"""
PAIR = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"


def f8(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float32).astype("float8_e4m3fn")


def model_of(text: str, **arrays: np.ndarray) -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 19]> {text}')
    for name, array in arrays.items():
        is_f8 = array.dtype.name == "float8_e4m3fn"
        kind = onnx.TensorProto.FLOAT8E4M3FN if is_f8 else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = onnx.helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
        proto.graph.initializer.append(tensor)
    name_nodes(proto.graph)
    return make_model(ir.from_proto(proto))


def grid(scale: float = 0.01) -> dict[str, np.ndarray]:
    return {"s": np.float32(scale) * np.ones((), np.float32), "z": f8(np.zeros(()))}


def product() -> Model:
    weights = {
        "codes": f8(samples(8, 16, seed=2) * 100),
        "ws": np.abs(samples(8, seed=3)) / 100 + np.float32(0.001),
        "wz": f8(np.zeros(8)),
    }
    return model_of(PRODUCT, **grid(), **weights)


def reasons(found: QuantizedModel) -> dict[str, str]:
    return {row.node: row.reason for row in found.placement.decisions}


def assert_same(model: Model, found: QuantizedModel, x: np.ndarray) -> None:
    """The program in float32 computes what ONNX Runtime does of the model as given."""
    lowering = CudaLowering(model, CudaConfig(), {"x": x}, gpu=gpu_named("H200"), device=None)
    program = lowering.reference(found, "fp32")
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    (want,) = run_ort(model.graph, {"x": x})
    np.testing.assert_allclose(executor.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    executor.close()


def test_a_product_reads_the_codes_of_the_file():
    model = product()
    assert target_of_own(model) is CUDA_FP8
    found = read(model)
    assert found.target is CUDA_FP8
    assert [row.op_type for row in found.placement.decisions if row.is_int8] == ["MatMul"]
    assert found.activations["x"].dtype == FP8
    assert found.activations["x"].scale == np.float32(0.01)
    (weight,) = found.weights.values()
    assert weight.codes.dtype == "float8_e4m3fn"
    assert_same(model, found, samples(5, 16, seed=4) * 3)  # some beyond 448 * 0.01


def test_a_quantized_constant_is_a_weight():
    text = f"net (float[N,16] x) => (float[N,8] y) {{ {PAIR} a = QuantizeLinear(w, s, z) "
    model = model_of(text + "b = DequantizeLinear(a, s, z) y = MatMul(d, b) }", **grid(), w=samples(16, 8))
    found = read(model)
    (weight,) = found.weights.values()
    assert weight.qparams.dtype == FP8
    assert_same(model, found, samples(5, 16, seed=4))


def test_what_else_reads_a_pair_reads_a_rounding():
    model = model_of(f"net (float[N,16] x) => (float[N,16] y) {{ {PAIR} y = Tanh(d) }}", **grid())
    found = read(model)
    assert not found.has_int8
    assert reasons(found)["QuantizeLinear_0"] == "a rounding in floats, exact in value"
    assert_same(model, found, samples(5, 16, seed=4) * 3)


def test_a_convolution_reads_floats_that_were_rounded():
    text = f"net (float[N,3,8,8] x) => (float[N,4,6,6] y) {{ {PAIR} y = Conv(d, w) }}"
    model = model_of(text, **grid(), w=samples(4, 3, 3, 3))
    found = read(model)
    assert not found.has_int8
    assert reasons(found)["Conv_2"] == "its weight is not quantized"
    assert_same(model, found, samples(2, 3, 8, 8, seed=4))


def test_convolutions_in_int8_are_read_beside_products_in_fp8():
    text = """net (float[N,4,6,6] x) => (float[N,8] y) {
      c = Conv<pads=[1,1,1,1]>(x, k)
      m = GlobalAveragePool(c)
      f = Flatten(m)
      a = MatMul(f, u)
      b = MatMul(f, v)
      t = Sub(a, b)
      s = Tanh(t)
      y = MatMul(s, w)
    }"""
    arrays = {"k": samples(8, 4, 3, 3), "u": samples(8, 8), "v": samples(8, 8), "w": samples(8, 8)}
    inputs = {"x": samples(8, 4, 6, 6)}
    written = quantized(net(text, arrays), CUDA_FP8, inputs)
    model = make_model(write(written))
    assert target_of_own(model) is CUDA_FP8
    found = read(model)
    assert {grid.dtype for grid in found.activations.values()} == {INT8, FP8}
    kinds = {use[0].partition("_")[0]: tensor.qparams.dtype for use, tensor in found.weights.items()}
    assert kinds == {"Conv": INT8, "MatMul": FP8}
    assert_same(model, found, inputs["x"])


def test_pairs_of_the_other_kind_are_roundings():
    eight = {"s8": np.float32(0.02) * np.ones((), np.float32), "z8": np.zeros((), np.int8)}
    text = PRODUCT.replace("y = MatMul(d, wt)", "m = MatMul(d, wt) q8 = QuantizeLinear(m, s8, z8) ")
    text = text.replace("\n}", " y = DequantizeLinear(q8, s8, z8) }")
    first = product()
    arrays = {name: value.const_value.numpy() for name, value in first.graph.graph.initializers.items()}
    model = model_of(text, **arrays, **eight)
    # One of each: integers come first, and the fp8 pair is a rounding.
    assert target_of_own(model) is CUDA
    for target, dtype in ((CUDA, INT8), (CUDA_FP8, FP8)):
        found = read(model, target)
        assert all(grid.dtype == dtype for grid in found.activations.values())
        assert found.has_int8 == (target is CUDA_FP8)
        assert_same(model, found, samples(5, 16, seed=4))


def test_codes_that_do_not_saturate_are_computed_as_they_are():
    pair = PAIR.replace("QuantizeLinear(", "QuantizeLinear<saturate=0>(", 1)
    model = model_of(f"net (float[N,16] x) => (float[N,16] y) {{ {pair} y = Tanh(d) }}", **grid())
    found = read(model)
    assert "beyond its codes is to become NaN" in reasons(found)["QuantizeLinear_0"]
