# SPDX-License-Identifier: Apache-2.0
"""Cases that ONNX's node tests leave out: models in ONNX text, with the answers of ONNX Runtime.

ONNX tests the newest version of each operator; models use older ones, down to opset 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

__all__ = ["MORE_CASES", "MoreCase"]

_SEED = 20260101
_FATAL = 4  # ONNX Runtime's log severity


@dataclass(frozen=True)
class MoreCase:
    """A model and how to make its inputs.

    Attributes:
        opset: version of the default domain.
        text: signature and nodes: "(float[2,3] x) => (float[2,3] y) { y = Relu(x) }".
        inputs: arrays for inputs that may not be random.
    """

    name: str
    opset: int
    text: str
    inputs: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-3  # those of ONNX's own runner
    atol: float = 1e-7

    def model(self) -> onnx.ModelProto:
        """The model, checked."""
        header = f'<ir_version: 8, opset_import: ["": {self.opset}]>'
        return onnx.parser.parse_model(f"{header} {self.name.replace('-', '_')} {self.text}")

    def data_set(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Seeded inputs and what ONNX Runtime makes of them, unoptimized."""
        import onnxruntime  # optional here: a library that only this function needs

        model = self.model()
        rng = np.random.default_rng(_SEED)
        inputs = {
            value.name: np.asarray(self.inputs[value.name], _numpy_type(value))
            if value.name in self.inputs
            else _random(value, rng)
            for value in model.graph.input
        }
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(inputs.values()), session.run(None, inputs)


def _numpy_type(value: onnx.ValueInfoProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def _random(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    dtype = _numpy_type(value)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -100), min(limits.max, 255), shape, dtype=dtype, endpoint=True)


def _unary(op: str, opset: int, attributes: str = "", shape: str = "2,3,4") -> MoreCase:
    call = f"{op} <{attributes}>" if attributes else op
    words = "".join(c if c.isalnum() else "_" for c in attributes)
    name = f"{op.lower()}_{opset}{'_' + words if words else ''}"
    return MoreCase(name, opset, f"(float[{shape}] x) => (float y) {{ y = {call} (x) }}")


def _reduction(op: str, opset: int) -> MoreCase:
    """Before the axes were an input; positive numbers, for the logarithms."""
    return MoreCase(
        f"{op.lower()}_{opset}",
        opset,
        f"(float[2,3,4] x) => (float y, float z) {{ a = Abs (x) y = {op} <axes=[-2], keepdims=0> (a)"
        f" z = {op} (a) }}",
    )


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def _statistics(name: str, call: str, mean: float, low: float, high: float) -> MoreCase:
    """Random numbers have the mean asked for, stay in bounds, and are not all alike."""
    return MoreCase(
        name,
        13,
        "(float[64,64] x) => (bool centred, bool bounded, bool spread) { r = "
        + call
        + f"""
        m = ReduceMean <keepdims=0> (r)
        mean = Constant <value = float {{{mean}}}> () d = Sub (m, mean) a = Abs (d)
        tenth = Constant <value = float {{0.2}}> () centred = Less (a, tenth)
        low = Constant <value = float {{{low}}}> () high = Constant <value = float {{{high}}}> ()
        least = ReduceMin <keepdims=0> (r) most = ReduceMax <keepdims=0> (r)
        above = Greater (least, low) below = Less (most, high) bounded = And (above, below)
        gap = Sub (most, least) spread = Greater (gap, tenth) }}""",
    )


MORE_CASES: tuple[MoreCase, ...] = (
    # ---- operators without a node test
    _unary("ScaledTanh", 9, "alpha=1.5, beta=0.7"),
    _unary("ParametricSoftplus", 9, "alpha=1.5, beta=0.7"),
    _unary("ImageScaler", 9, "scale=2.0, bias=[0.5, -1.0, 3.0]", "2,3,4,5"),
    _unary("GlobalLpPool", 13, "", "2,3,4,5"),
    _unary("GlobalLpPool", 13, "p=3", "2,3,4,5"),
    _statistics("random_normal", "RandomNormal <shape=[64,64], mean=3.0, scale=2.0> ()", 3, -20, 26),
    _statistics("random_normal_like", "RandomNormalLike <mean=-1.0, scale=0.5> (x)", -1, -7, 5),
    _statistics("random_uniform", "RandomUniform <shape=[64,64], low=2.0, high=4.0> ()", 3, 1.999, 4.001),
    _statistics("random_uniform_like", "RandomUniformLike <low=-1.0, high=1.0> (x)", 0, -1.001, 1.001),
    # ---- attributes that became inputs
    *(_reduction(f"Reduce{kind}", 11 if kind == "Sum" else 13) for kind in _REDUCTIONS),
    *(_unary(op, 11, "axis=1") for op in ("Softmax", "LogSoftmax", "Hardmax")),
    _unary("Clip", 10, "min=-0.5, max=0.25"),
    _unary("Squeeze", 11, "axes=[0, -2]", "1,3,1,4"),
    _unary("Unsqueeze", 11, "axes=[0, 3]"),
    _unary("Slice", 9, "starts=[1, -3], ends=[9, -1], axes=[1, 2]", "2,3,4"),
    _unary("Pad", 10, "pads=[0, 1, 2, 0, 0, 1], value=1.5"),
    _unary("Pad", 10, 'pads=[0, 1, 2, 0, 0, 1], mode="reflect"'),
    _unary("Upsample", 8, 'scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"', "1,2,3,4"),
    _unary("Upsample", 8, 'scales=[1.0, 1.0, 2.0, 3.0], mode="linear"', "1,2,3,4"),
    _unary("Dropout", 10, "ratio=0.3"),
    MoreCase("split_11", 11, "(float[6,4] x) => (float a, float b) { a, b = Split <split=[2,4]> (x) }"),
    MoreCase("split_11_equal", 11, "(float[6,4] x) => (float a, float b) { a, b = Split <axis=1> (x) }"),
    MoreCase("topk_9", 9, "(float[3,7] x) => (float v, int64 i) { v, i = TopK <k=3, axis=1> (x) }"),
    MoreCase(
        "topk_10", 10, "(float[3,7] x, int64[1] k) => (float v, int64 i) { v, i = TopK (x, k) }", {"k": [2]}
    ),
    # ---- versions that compute otherwise
    MoreCase(
        "batch_norm_9",
        9,
        "(float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float y)"
        " { p = Abs (v) y = BatchNormalization <epsilon=0.01> (x, s, b, m, p) }",
    ),
    MoreCase(
        "group_norm_18",
        18,
        "(float[2,4,5] x, float[2] s, float[2] b) => (float y)"
        " { y = GroupNormalization <num_groups=2> (x, s, b) }",
        atol=1e-6,
    ),
    MoreCase(
        "roi_align_10",
        10,
        "(float[2,3,8,8] x, float[2,4] rois, int64[2] images) => (float y)"
        " { y = RoiAlign <output_height=2, output_width=3, sampling_ratio=2, spatial_scale=0.5>"
        " (x, rois, images) }",
        {"rois": [[1, 2, 11, 14], [0, 0, 6, 5]], "images": [1, 0]},
    ),
    MoreCase(
        "resize_10",
        10,
        "(float[1,2,4,5] x, float[4] scales) => (float y, float z)"
        ' { y = Resize <mode="nearest"> (x, scales) z = Resize <mode="linear"> (x, scales) }',
        {"scales": [1, 1, 1.5, 2]},
    ),
    MoreCase(
        "resize_11",
        11,
        "(float[1,2,4,5] x, float[8] roi, float[4] scales) => (float y)"
        ' { y = Resize <mode="cubic", coordinate_transformation_mode="align_corners"> (x, roi, scales) }',
        {"scales": [1, 1, 1.5, 2], "roi": [0, 0, 0, 0, 1, 1, 1, 1]},
        atol=1e-6,
    ),
    MoreCase(
        "grid_sample_16",
        16,
        "(float[1,2,4,5] x, float[1,3,3,2] grid) => (float y, float z)"
        ' { y = GridSample <mode="bilinear"> (x, grid)'
        ' z = GridSample <mode="bicubic", padding_mode="border", align_corners=1> (x, grid) }',
        atol=1e-6,
    ),
    MoreCase("prelu_9", 9, "(float[2,3,4] x, float[3,1] s) => (float y) { y = PRelu (x, s) }"),
    MoreCase(
        "gemm_9",
        9,
        "(float[4,3] a, float[5,4] b, float[5] c) => (float y)"
        " { y = Gemm <alpha=0.5, beta=2.0, transA=1, transB=1> (a, b, c) }",
        atol=1e-6,
    ),
    MoreCase(
        "scatter_9",
        9,
        "(float[4,5] x, int64[2,5] i, float[2,5] u) => (float y) { y = Scatter (x, i, u) }",
        {"i": [[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]},
    ),
    # ---- integers
    MoreCase(
        "matmul_integer_zero_points",
        10,
        "(uint8[2,4,70] a, int8[70,5] b, uint8 za, int8[5] zb) => (int32 y)"
        " { y = MatMulInteger (a, b, za, zb) }",
    ),
    MoreCase(
        "conv_integer_asymmetric",
        10,
        "(uint8[1,4,9,9] x, uint8[6,2,3,3] w, uint8 zx, uint8 zw) => (int32 y)"
        " { y = ConvInteger <group=2, pads=[1,0,2,1], strides=[2,1], dilations=[1,2]> (x, w, zx, zw) }",
    ),
    MoreCase(
        "qlinear_conv_per_channel",
        10,
        "(uint8[1,3,9,9] x, int8[4,3,3,3] w, float[4] sw, int8[4] zw, int32[4] b) => (uint8 y)"
        " { sx = Constant <value = float {0.02}> () zx = Constant <value = uint8 {121}> ()"
        " sy = Constant <value = float {2.5}> () zy = Constant <value = uint8 {130}> () p = Abs (sw)"
        " y = QLinearConv <pads=[1,1,1,1]> (x, sx, zx, w, p, zw, sy, zy, b) }",
        {"zw": [0, 0, 0, 0]},
    ),
    MoreCase(
        "quantize_13_axis",
        13,
        "(float[3,40] x, float[3] s, int8[3] z) => (int8 y, float r)"
        " { y = QuantizeLinear <axis=0> (x, s, z) r = DequantizeLinear <axis=0> (y, s, z) }",
        {"s": [0.01, 0.02, 0.05], "z": [-7, 0, 12]},
    ),
    # ---- recurrent layers beyond ONNX's tests
    MoreCase(
        "lstm_bidirectional_lengths",
        14,
        "(float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[2,32] b, int32[2] n) =>"
        " (float y, float h, float c)"
        ' { y, h, c = LSTM <hidden_size=4, direction="bidirectional"> (x, w, r, b, n) }',
        {"n": [5, 3]},
        atol=1e-6,
    ),
    MoreCase(
        "gru_reverse_activations",
        14,
        "(float[5,2,3] x, float[1,12,3] w, float[1,12,4] r, float[1,24] b, int32[2] n, float[1,2,4] h0) =>"
        " (float y, float h)"
        ' { y, h = GRU <hidden_size=4, direction="reverse", linear_before_reset=1,'
        ' activations=["HardSigmoid", "Softsign"]> (x, w, r, b, n, h0) }',
        {"n": [4, 5]},
        atol=1e-6,
    ),
    MoreCase(
        "rnn_clip",
        14,
        "(float[5,2,3] x, float[1,4,3] w, float[1,4,4] r) => (float y, float h)"
        ' { y, h = RNN <hidden_size=4, clip=0.5, activations=["Affine"], activation_alpha=[0.5],'
        " activation_beta=[0.25]> (x, w, r) }",
        atol=1e-6,
    ),
    # ---- pools that torch's kernels do not do
    MoreCase(
        "max_pool_dilated_ceil_indices",
        12,
        "(float[2,3,11,10] x) => (float y, int64 i)"
        " { y, i = MaxPool <kernel_shape=[3,2], strides=[2,3], dilations=[2,1], pads=[1,0,2,1],"
        " ceil_mode=1> (x) }",
    ),
    MoreCase(
        "max_pool_uint8",
        12,
        "(uint8[1,2,7,7] x) => (uint8 y) { y = MaxPool <kernel_shape=[3,3], pads=[1,1,0,0]> (x) }",
    ),
    MoreCase(
        "average_pool_dilated",
        19,
        "(float[1,2,9,9] x) => (float y, float z)"
        " { y = AveragePool <kernel_shape=[3,2], dilations=[2,3], pads=[1,1,0,1], count_include_pad=1> (x)"
        " z = AveragePool <kernel_shape=[3,2], strides=[2,2], pads=[0,1,1,0], ceil_mode=1> (x) }",
        atol=1e-6,
    ),
    MoreCase(
        "conv_transpose_groups",
        11,
        "(float[1,4,5,5] x, float[4,3,3,2] w, float[6] b) => (float y)"
        " { y = ConvTranspose <group=2, strides=[2,3], dilations=[1,2], pads=[1,0,2,1],"
        " output_padding=[1,2]> (x, w, b) }",
        atol=1e-6,
    ),
)
