# SPDX-License-Identifier: Apache-2.0
"""Legal spellings of one quantized layer, drawn at random: all are read, and compute what they computed.

Illegal ones end in an error of QuantRT's own that names the node, wherever they are noticed.
"""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from quantrt.errors import QuantRtError
from quantrt.model.load import load_model
from quantrt.quantize.explicit.read import read
from quantrt.quantize.lint.placement_rules import placement_findings
from quantrt.quantize.lint.tensorrt import tensorrt_findings
from quantrt.quantize.qdq.unquantized import without_pairs
from quantrt.quantize.qdq.write import write
from quantrt.reference.metrics import sqnr_db

SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHANNELS = 4
SAME_DB = 60.0
"""Equal codes; scales are irrational, so that no sum lies between two."""


@dataclass(frozen=True)
class Spelling:
    """How a layer is written."""

    product: str
    opset: int
    code_type: type
    zero_point: int | None
    scalars: str
    constants: str
    weight_form: str
    weight_type: type
    per_channel: bool
    negative_axis: bool
    bias: str
    behind: str
    ends_in_codes: bool
    reads_twice: bool
    is_padded: bool


@st.composite
def spellings(draw):
    code_type = draw(st.sampled_from([np.int8, np.uint8]))
    lowest = int(np.iinfo(code_type).min)
    zero_point = draw(st.none() | st.integers(lowest, lowest + 255))
    opset = draw(st.sampled_from([13, 17, 19, 21]))
    per_channel = draw(st.booleans())
    return Spelling(
        product=draw(st.sampled_from(["Conv", "Gemm", "Gemm transB", "MatMul"])),
        opset=opset,
        code_type=np.uint8 if zero_point is None else code_type,
        zero_point=zero_point,
        scalars=draw(st.sampled_from(["scalar", "one"])),
        constants=draw(st.sampled_from(["initializer", "node", "identity", "input"])),
        weight_form=draw(st.sampled_from(["codes", "floats", "transposed"])),
        weight_type=draw(st.sampled_from([np.int8, np.uint8])),
        per_channel=per_channel,
        negative_axis=draw(st.booleans()),
        bias=draw(st.sampled_from(["none", "float", "int32"])),
        behind=draw(st.sampled_from(["nothing", "Relu", "Add", "Sigmoid", "Transpose"])),
        ends_in_codes=draw(st.booleans()),
        reads_twice=draw(st.booleans()),
        is_padded=draw(st.booleans()),
    )


class Writer:
    """An ONNX model, node by node."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.nodes, self.initializers, self.inputs = [], [], []

    def node(self, op_type: str, inputs: list[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def constant(self, name: str, array: np.ndarray) -> str:
        tensor = numpy_helper.from_array(array, name)
        match self.spelling.constants:
            case "node":
                self.nodes.append(helper.make_node("Constant", [], [name], name=f"node_{name}", value=tensor))
            case "identity":
                tensor.name = f"{name}_given"
                self.initializers.append(tensor)
                self.node("Identity", [tensor.name], name)
            case kind:
                self.initializers.append(tensor)
                if kind == "input":
                    self.inputs.append(helper.make_tensor_value_info(name, tensor.data_type, array.shape))
        return name

    def number(self, name: str, value: np.ndarray) -> str:
        return self.constant(name, value.reshape(() if self.spelling.scalars == "scalar" else (1,)))

    def grid(self, name: str, scale: float) -> list[str]:
        """Scale and zero point of activations."""
        given = [self.number(f"{name}_scale", np.asarray(scale, np.float32))]
        if self.spelling.zero_point is not None:
            zero = np.asarray(self.spelling.zero_point, self.spelling.code_type)
            given.append(self.number(f"{name}_zero", zero))
        return given

    def pair(self, x: str, name: str, scale: float) -> str:
        grid = self.grid(name, scale)
        self.node("QuantizeLinear", [x, *grid], f"{name}_codes")
        return self.node("DequantizeLinear", [f"{name}_codes", *grid], name)


def model_of(spelling: Spelling) -> onnx.ModelProto:
    writer, rng = Writer(spelling), np.random.default_rng(11)
    x = writer.pair("x", "rounded", 0.02 * np.sqrt(3))
    is_conv = spelling.product == "Conv"
    shape = (CHANNELS, CHANNELS, 3, 3) if is_conv else (CHANNELS, CHANNELS)
    axis = 0 if spelling.product in ("Conv", "Gemm transB") else 1
    weight = write_weight(writer, rng, shape, axis)
    inputs = [x, weight]
    if spelling.bias != "none" and spelling.product != "MatMul":
        inputs.append(write_bias(writer, rng))
    attributes = {"pads": [1, 1, 1, 1]} if is_conv and spelling.is_padded else {}
    if spelling.product == "Gemm transB":
        attributes["transB"] = 1
    y = writer.node(spelling.product.partition(" ")[0], inputs, "product", **attributes)
    match spelling.behind:
        case "Relu" | "Sigmoid" as op_type:
            y = writer.node(op_type, [y], "behind")
        case "Add":
            y = writer.node("Add", [y, y if is_conv and not spelling.is_padded else x], "behind")
        case "Transpose":
            y = writer.node("Transpose", [y], "behind", perm=[1, 0, 2, 3] if is_conv else [1, 0])
    if spelling.ends_in_codes:
        y = writer.pair(y, "ended", 0.05 * np.sqrt(2))
    outputs = [writer.node("Identity", [y], "y")]
    if spelling.reads_twice:
        outputs.append(writer.node("Exp", [x], "other"))
    shape = ["N", CHANNELS, 6, 6] if is_conv else ["N", CHANNELS]
    dims = ["a", "b", "c", "d"]
    graph = helper.make_graph(
        writer.nodes,
        "drawn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *writer.inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims[: len(shape)]) for name in outputs],
        writer.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", spelling.opset)], ir_version=10)


def write_weight(writer: Writer, rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> str:
    spelling = writer.spelling
    turned = spelling.weight_form == "transposed" and len(shape) == 2
    own_axis = 1 - axis if turned else axis
    info = np.iinfo(spelling.weight_type)
    scale = 0.01 * np.sqrt(np.arange(2, 2 + CHANNELS)) if spelling.per_channel else np.asarray(0.01)
    middle = 128 if spelling.weight_type == np.uint8 else 0
    zero = np.full(scale.shape, middle, spelling.weight_type)
    codes = rng.integers(info.min + 1, info.max + 1, shape).astype(spelling.weight_type)
    stored = codes.T.copy() if turned else codes
    named = (
        {"axis": own_axis - len(shape) if spelling.negative_axis else own_axis}
        if spelling.per_channel
        else {}
    )
    if spelling.per_channel:
        grid = [writer.constant("w_scale", scale.astype(np.float32)), writer.constant("w_zero", zero)]
    else:
        grid = [writer.number("w_scale", scale.astype(np.float32)), writer.number("w_zero", zero)]
    if spelling.weight_form == "floats":
        wide = [1] * len(shape)
        wide[axis] = -1
        factor = scale.reshape(wide) if spelling.per_channel else scale
        floats = writer.constant("w", ((stored.astype(np.float64) - middle) * factor).astype(np.float32))
        writer.node("QuantizeLinear", [floats, *grid], "w_codes", **named)
    else:
        writer.constant("w_codes", stored)
    writer.node("DequantizeLinear", ["w_codes", *grid], "w_rounded", **named)
    return writer.node("Transpose", ["w_rounded"], "w_turned", perm=[1, 0]) if turned else "w_rounded"


def write_bias(writer: Writer, rng: np.random.Generator) -> str:
    if writer.spelling.bias == "float":
        return writer.constant("b", rng.standard_normal(CHANNELS).astype(np.float32))
    scale = writer.number("b_scale", np.asarray(0.0003, np.float32))
    codes = writer.constant("b_codes", rng.integers(-3000, 3000, CHANNELS).astype(np.int32))
    return writer.node("DequantizeLinear", [codes, scale], "b")


def run(graph: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


@SETTINGS
@given(spellings())
def test_every_spelling_computes_what_it_computed(tmp_path, spelling: Spelling):
    proto = model_of(spelling)
    onnx.checker.check_model(proto)
    path = tmp_path / "drawn.onnx"
    onnx.save(proto, path)
    x = np.random.default_rng(3).standard_normal(
        (3, CHANNELS, 6, 6) if spelling.product == "Conv" else (3, CHANNELS)
    )
    x = x.astype(np.float32)
    wanted = run(proto, x)
    model = load_model(path)
    found = read(model)
    for graph in (write(found), model.graph):
        for want, got in zip(wanted, run(ir.to_proto(graph), x), strict=True):
            assert want.shape == got.shape
            assert sqnr_db(want, got) > SAME_DB
    placement_findings(model.graph.graph)
    tensorrt_findings(model.graph.graph)
    without_pairs(model.graph)


def spoil(proto: onnx.ModelProto, how: str) -> str:
    """Break one thing; the name of the node whose it is."""
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    nodes = {node.name: node for node in proto.graph.node}

    def put(name: str, array: np.ndarray) -> None:
        arrays[name].CopyFrom(numpy_helper.from_array(array, name))

    match how:
        case "too many scales":
            put("w_scale", np.ones(CHANNELS + 1, np.float32))
            put("w_zero", np.zeros(CHANNELS + 1, np.int8))
        case "scales of a rank":
            put("w_scale", np.ones((CHANNELS, 1, 1, 1), np.float32))
        case "an axis that is not there":
            next(a for a in nodes["node_w_rounded"].attribute if a.name == "axis").i = 7
        case "a scale that is no number":
            put("w_scale", np.full(CHANNELS, np.nan, np.float32))
        case "a scale of zero":
            put("rounded_scale", np.asarray(0, np.float32))
            return "node_rounded_codes"
        case "a zero point of another type":
            put("rounded_zero", np.asarray(3, np.int32))
            return "node_rounded_codes"
        case "no scale":
            del nodes["node_rounded_codes"].input[1:]
            return "node_rounded_codes"
        case "codes of text":
            put("w_codes", np.zeros((CHANNELS, CHANNELS, 3, 3), np.float32))
    return "node_w_rounded"


PLAIN = Spelling(
    product="Conv", opset=17, code_type=np.int8, zero_point=0, scalars="scalar", constants="initializer",
    weight_form="codes", weight_type=np.int8, per_channel=True, negative_axis=False, bias="float",
    behind="Relu", ends_in_codes=True, reads_twice=False, is_padded=True,
)  # fmt: skip


@pytest.mark.parametrize(
    "how",
    [
        "too many scales",
        "scales of a rank",
        "an axis that is not there",
        "a scale that is no number",
        "a scale of zero",
        "a zero point of another type",
        "no scale",
        "codes of text",
    ],
)
def test_an_illegal_spelling_is_an_error_that_names_its_node(tmp_path, how: str):
    proto = model_of(PLAIN)
    name = spoil(proto, how)
    path = tmp_path / "spoiled.onnx"
    onnx.save(proto, path)
    with pytest.raises(QuantRtError) as caught:
        read(load_model(path))
    assert name in str(caught.value)
