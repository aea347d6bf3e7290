# SPDX-License-Identifier: Apache-2.0
"""Layers as TensorRT's inspector writes them, against files that trtexec wrote."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quantrt.plan.plan import Layer
from quantrt.report.engine_layers.layer import CHANNELS_LAST, ROW_MAJOR, EngineLayer, TensorForm
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.trtexec.reports.layers_json import format_text, layer_names, layers_json, layers_text
from tests.plans import make_plan
from tests.unit.report.quantized_plans import cuda_plan_of, int8_plan

REAL = (
    "trex_tests/mobilenet.qat.onnx.engine.graph.json",
    "trex_tests/mobilenet_v2_residuals.qat.onnx.engine.graph.json",
    "pytorch/resnet/A100/fp32/resnet.onnx.engine.graph.json",
    "pytorch/resnet/A100/fp16/resnet.onnx.engine.graph.json",
    "pytorch/resnet/A100/qat/resnet-qat.onnx.engine.graph.json",
    "pytorch/resnet/A100/qat-residual/resnet-qat-residual.onnx.engine.graph.json",
)

CONV = EngineLayer(
    name="conv1_token_3",
    kind="Conv",
    nodes=("conv1", "relu1"),
    sources=("conv1", "bn1", "relu1"),
    precision="int8",
    tactic="triton: conv 64x64",
    inputs=(TensorForm(name="x", dims=(1, 8, 16, 16), dtype="int8", layout=CHANNELS_LAST),),
    outputs=(TensorForm(name="y", dims=("n", 32, 8, 8), dtype="int8", layout=CHANNELS_LAST),),
    weights={"int8": 32 * 4 * 9, "float32": 64 * 4, "int32": 32 * 4},
    attributes={
        "kernel": [3, 3],
        "strides": [2, 2],
        "pads": [1, 1, 0, 0],
        "dilations": [1, 1],
        "groups": 2,
    },
)
POOL = EngineLayer(
    name="pool",
    kind="MaxPool",
    sources=("pool",),
    inputs=(TensorForm(name="y", dims=(1, 32, 8, 8), dtype="float32", layout="nChw16c"),),
    outputs=(TensorForm(name="z", dims=None, dtype="float32", layout=ROW_MAJOR),),
    attributes={"kernel_shape": [2, 2], "pads_begin": [0, 0], "pads_end": [1, 1], "strides": [2, 2]},
)
REORDER = EngineLayer(
    name="to_int8",
    kind="Reorder",
    inputs=(TensorForm(name="z", dims=(1, 4), dtype="float32", layout=ROW_MAJOR),),
    outputs=(TensorForm(name="q", dims=(1, 4), dtype="int8", layout=ROW_MAJOR),),
)
PLAN = replace(
    make_plan("onnxruntime"),
    layers=(
        Layer(name="conv1", op_type="Conv", precision="int8", reason=""),
        Layer(name="relu1", op_type="Relu", precision="int8", reason=""),
    ),
)


def document() -> dict[str, Any]:
    return layers_json(PLAN, (CONV, POOL, REORDER), is_detailed=True)


def test_a_convolution_field_by_field():
    conv = document()["Layers"][0]
    assert conv["Name"] == "conv1 + bn1 + relu1"
    assert conv["LayerType"] == "Conv"
    assert conv["ParameterType"] == "Convolution"
    assert conv["Inputs"] == [
        {
            "Name": "x",
            "Location": "Device",
            "Dimensions": [1, 8, 16, 16],
            "Format/Datatype": "Channel major Int8 format",
            "Layout": "channels last",
        }
    ]
    assert conv["Outputs"][0]["Dimensions"] == [-1, 32, 8, 8]
    assert (conv["Kernel"], conv["Stride"], conv["Dilation"]) == ([3, 3], [2, 2], [1, 1])
    assert (conv["PrePadding"], conv["PostPadding"]) == ([1, 1], [0, 0])
    assert (conv["OutMaps"], conv["Groups"]) == (32, 2)
    assert conv["Weights"] == {"Type": "Int8", "Count": 32 * 4 * 9}
    assert conv["Bias"] == {"Type": "Int32", "Count": 32}
    assert (conv["Activation"], conv["HasReLU"], conv["HasBias"]) == ("RELU", 1, 1)
    assert conv["TacticName"] == "triton: conv 64x64"


def test_the_source_map_has_a_separator_between_nodes():
    assert document()["Layers"][0]["Metadata"] == (
        "[ONNX Layer: conv1]\x1f[ONNX Layer: bn1]\x1f[ONNX Layer: relu1]"
    )
    assert document()["Layers"][2]["Metadata"] == ""


def test_what_is_not_known_is_left_out():
    unsure = replace(CONV, weights={"int8": 32 * 4 * 9, "float32": 64 * 4}, attributes={"kernel": [3, 3]})
    (row,) = layers_json(PLAN, (unsure,), is_detailed=True)["Layers"]
    assert not {"Bias", "HasBias", "Groups", "Stride", "PaddingMode"} & set(row)


@pytest.mark.parametrize(("extra", "count"), [(0, 0), (32 * 4, 32), (5, None)])
def test_a_float_convolution_has_a_bias_where_the_bytes_say_so(extra: int, count: int | None):
    layer = replace(CONV, weights={"float32": 32 * 4 * 9 * 4 + extra})
    (row,) = layers_json(PLAN, (layer,), is_detailed=True)["Layers"]
    assert row["Weights"] == {"Type": "Float", "Count": 32 * 4 * 9}
    assert row.get("Bias") == (None if count is None else {"Type": "Float", "Count": count})


def test_pools_and_conversions():
    _, pool, reorder = document()["Layers"]
    assert (pool["ParameterType"], pool["PoolingType"], pool["WindowSize"]) == ("Pooling", "MAX", [2, 2])
    assert (pool["PrePadding"], pool["PostPadding"]) == ([0, 0], [1, 1])
    assert pool["Outputs"][0]["Dimensions"] == []
    assert (reorder["ParameterType"], reorder["Origin"]) == ("Reformat", "QDQ")
    assert reorder["TacticValue"] == "0x0000000000000000"


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_product_tells_its_weights(dtype: str):
    """What readers add up as the weights of an engine."""
    x = TensorForm(name="x", dims=(2, 7, 48), dtype="float32", layout=ROW_MAJOR)
    y = replace(x, name="y", dims=(2, 7, 16))
    size = {"int8": 1, "float32": 4}[dtype]
    product = EngineLayer(name="fc", kind="MatMul", inputs=(x,), outputs=(y,), weights={dtype: 768 * size})
    (row,) = layers_json(PLAN, (product,), is_detailed=True)["Layers"]
    assert row["ParameterType"] == "MatrixMultiply"
    assert row["Weights"] == {"Type": {"int8": "Int8", "float32": "Float"}[dtype], "Count": 768}
    (row,) = layers_json(PLAN, (replace(product, weights={}),), is_detailed=True)["Layers"]
    assert "Weights" not in row, "of two activations"


@pytest.mark.parametrize("kind", ["ReorderInput", "ReorderOutput", "Cast", "Rows"])
def test_conversions_of_every_library_are_reformats(kind: str):
    (row,) = layers_json(PLAN, (replace(REORDER, kind=kind),), is_detailed=True)["Layers"]
    assert (row["ParameterType"], row["Origin"]) == ("Reformat", "QDQ")


@pytest.mark.parametrize(
    ("dtype", "layout", "text"),
    [
        ("float32", ROW_MAJOR, "Row major linear FP32"),
        ("float16", ROW_MAJOR, "Row major linear FP16 format"),
        ("int8", ROW_MAJOR, "Row major Int8 format"),
        ("float16", CHANNELS_LAST, "Channel major FP16 format"),
        ("float32", "nChw16c", "Float"),
        ("int8", "nChw16c", "Int8"),
        ("complex64", ROW_MAJOR, "Unknown format"),
    ],
)
def test_formats_in_the_words_of_tensorrt(dtype: str, layout: str, text: str):
    assert format_text(TensorForm(name="x", dims=(1,), dtype=dtype, layout=layout)) == text


def test_layers_of_one_node_have_names_of_their_own():
    layers = (CONV, replace(CONV, name="conv1_reduce"), REORDER)
    assert layer_names(layers) == {
        "conv1_token_3": "conv1 + bn1 + relu1",
        "conv1_reduce": "conv1 + bn1 + relu1#2",
        "to_int8": "to_int8",
    }


def test_images_have_their_channels_second_wherever_they_lie():
    image = TensorForm(name="a", dims=(1, 8, 6, 3), dtype="uint8", layout=ROW_MAJOR)
    made = TensorForm(name="b", dims=(1, 4, 3, 16), dtype="uint8", layout=ROW_MAJOR)
    rows = TensorForm(name="c", dims=(1, 8, 6), dtype="uint8", layout=ROW_MAJOR)
    conv = replace(
        CONV,
        inputs=(image,),
        outputs=(made,),
        weights={"int8": 16 * 3 * 9},
        attributes={"channels_last": True, "kernel_shape": [3, 3], "group": 1},
    )
    turn = EngineLayer(name="turn", kind="Transpose", inputs=(rows,), outputs=(image,))
    found = layers_json(PLAN, (turn, conv), is_detailed=True)["Layers"]
    assert found[0]["Inputs"][0]["Dimensions"] == [1, 8, 6]
    assert found[0]["Outputs"] == found[1]["Inputs"]
    assert found[1]["Inputs"][0]["Dimensions"] == [1, 3, 8, 6]
    assert found[1]["Inputs"][0]["Format/Datatype"] == "Channel major UInt8 format"
    assert found[1]["OutMaps"] == 16
    assert found[1]["Weights"] == {"Type": "Int8", "Count": 16 * 3 * 9}


def test_names_alone_and_the_text():
    found = layers_json(PLAN, (CONV, POOL), is_detailed=False)
    assert found == {"Layers": ["conv1 + bn1 + relu1", "pool"], "Bindings": ["x", "y"]}
    text = ["Layer Information:", "Layers:", "conv1 + bn1 + relu1", "pool", "", "Bindings:", "x", "y"]
    assert list(layers_text(found)) == text
    detailed = list(layers_text(document()))
    assert detailed[2].startswith("Name: conv1 + bn1 + relu1, LayerType: Conv, Inputs: [{Name: x, ")
    assert all("\x1f" not in line for line in detailed)


def real_layers(shared_data: Any) -> Iterator[dict[str, Any]]:
    for name in REAL:
        path: Path = shared_data(f"trtexec_json/{name}")
        yield from json.loads(path.read_text())["Layers"]


def test_fields_that_trtexec_writes_have_its_types(shared_data):
    kinds: dict[str, type] = {}
    for layer in real_layers(shared_data):
        for key, value in layer.items():
            assert kinds.setdefault(key, type(value)) is type(value)
    seen = set()
    for layer in document()["Layers"]:
        for key, value in layer.items():
            if key in kinds:
                seen.add(key)
                assert type(value) is kinds[key], key
    assert {"Name", "LayerType", "Kernel", "PrePadding", "OutMaps", "Weights", "HasReLU", "Origin"} <= seen


def test_no_field_of_a_convolution_is_of_our_making(shared_data):
    """What is not in these files is in those of later versions, or named as an addition."""
    real = {key for layer in real_layers(shared_data) for key in layer}
    own = {key for layer in document()["Layers"] for key in layer}
    assert own - real == {"StreamId", "Metadata", "QuantRTLayer"}


def test_formats_are_words_that_trtexec_uses(shared_data):
    words = {
        row["Format/Datatype"]
        for layer in real_layers(shared_data)
        for row in (*layer["Inputs"], *layer["Outputs"])
    }
    forms = [("float32", ROW_MAJOR), ("float16", ROW_MAJOR), ("int8", ROW_MAJOR), ("float32", CHANNELS_LAST)]
    for dtype, layout in forms:
        assert format_text(TensorForm(name="x", dims=(1,), dtype=dtype, layout=layout)) in words


def test_tensors_have_the_fields_of_real_ones(shared_data):
    own = document()["Layers"][0]["Inputs"][0]
    for layer in real_layers(shared_data):
        for row in (*layer["Inputs"], *layer["Outputs"]):
            assert list(row) == [key for key in own if key != "Layout"]
            assert {key: type(value) for key, value in row.items()} == {key: type(own[key]) for key in row}


def test_names_only_files_have_lists_of_names(shared_data):
    real = json.loads(shared_data("trtexec_json/notebooks_8e44926/layer_info.json").read_text())
    own = layers_json(PLAN, (CONV, POOL), is_detailed=False)
    assert list(own) == list(real)
    assert {type(name) for name in own["Layers"]} == {type(name) for name in real["Layers"]} == {str}


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_an_engine_of_each_library(library: str):
    plan = make_plan(library)
    layers = engine_layers(plan, shapes={"x": (2, 32)})
    found = layers_json(plan, layers, is_detailed=True)
    assert found["Bindings"] == ["x", "y"]
    assert len(found["Layers"]) == len(layers) > 0
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("library", ["onnxruntime", "openvino", "cuda"])
def test_what_trex_computes_can_be_computed(library: str):
    """Its EnginePlan, summary, convolutions as products, and linters of conversions, field by field.

    From its engine_plan.py, df_preprocessing.py, activations.py and lint.py (NVIDIA/TensorRT).
    """
    plan = int8_plan(library) if library != "cuda" else cuda_plan_of("h200")
    layers = engine_layers(plan, shapes={"x": (2, 3, 16, 16)})
    rows = layers_json(plan, layers, is_detailed=True)["Layers"]
    names = [row["Name"] for row in rows]
    assert len(set(names)) == len(names), "layers are paired with their times by name or place"
    tensors = [form["Name"] for row in rows for form in (*row["Inputs"], *row["Outputs"])]
    assert {"x", "y"} <= set(tensors), "inputs and outputs of the engine are found among the tensors"
    assert all(row["Outputs"] and row["ParameterType"] not in ("NoOp", "Constant") for row in rows)
    weights = [row["Weights"] for row in rows if "Weights" in row]
    assert all(found["Type"] in ("Int8", "Half", "Float", "Int32") for found in weights)
    convs = [row for row in rows if row["ParameterType"] == "Convolution"]
    assert len(convs) == 4 and sum(row["ParameterType"] == "Reformat" for row in rows) > 0
    for row in convs:
        (N, C, _, _), (M, K, P, Q) = (row[side][0]["Dimensions"] for side in ("Inputs", "Outputs"))
        R, S = row["Kernel"]
        assert N == M and min(C, K, P, Q, R, S, row["Groups"]) > 0
        assert row["Weights"]["Count"] == K * C * R * S // row["Groups"]
    for row in rows:
        if row["ParameterType"] == "Reformat":
            assert row["Inputs"] and row["Origin"] in ("QDQ", "REFORMAT")
