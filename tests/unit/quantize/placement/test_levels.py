# SPDX-License-Identifier: Apache-2.0
"""Roles of layers are told by structure, and levels allow what their numbers say."""

from pathlib import Path

import pytest

from quantrt.config import QUANTIZATION_LEVELS, QuantizeConfig
from quantrt.errors import UsageError
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.quantize.patterns.edges import edge_layers
from quantrt.quantize.patterns.roles import Role, roles_of
from quantrt.quantize.placement.levels import left_in_float, why_level_left_all
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from tests.denoisers import unet
from tests.nets import quantized, resnet, samples

BY_NAME = {target.name: target for target in (*TARGETS, CUDA, CUDA_FP8)}

EXPORTED = Path(__file__).parents[3] / "exported"

CONVOLUTIONS = {"conv1", "conv2"}
FEED_FORWARD = {"up", "down"}
PROJECTIONS = {"q1", "k1", "v1", "q2", "k2", "v2"}
LINEAR = {"proj_in", "out1", "out2"}
ATTENTION = {"qk1", "pv1", "qk2", "pv2"}
EDGES = {
    "conv_in": "it reads an input of the model",
    "time1": "it makes an embedding of a whole sample",
    "time2": "it makes an embedding of a whole sample",
    "time3": "it makes an embedding of a whole sample",
    "shortcut": "it is the shortcut of a residual block",
    "proj_out": "it turns tokens into an image",
    "y": "it makes an output of the model",
}


def by_output(model: Model) -> dict[str, str]:
    """Names of nodes by what they make."""
    return {value.name: node.name for node in model.graph.graph for value in node.outputs}


def int8_layers(model: Model, level: str, target_name: str) -> set[str]:
    """What the 8-bit convolutions and products make."""
    config = QuantizeConfig(quantization_level=level)
    placement = place_by_config(model.graph, BY_NAME[target_name], config)
    int8 = {row.node for row in placement.decisions if row.is_int8}
    names = set(roles_of(model.graph.graph))
    return {made for made, node in by_output(model).items() if node in int8 & names}


def test_every_layer_of_a_denoiser_has_its_role():
    model = unet()
    made = {node: value for value, node in by_output(model).items()}
    roles = {made[node]: role for node, role in roles_of(model.graph.graph).items()}
    expected = {
        **dict.fromkeys(CONVOLUTIONS | {"conv_in", "shortcut", "y"}, Role.CONVOLUTION),
        **dict.fromkeys(FEED_FORWARD, Role.FEED_FORWARD),
        **dict.fromkeys(PROJECTIONS, Role.PROJECTION),
        **dict.fromkeys(LINEAR | {"time1", "time2", "time3", "proj_out"}, Role.LINEAR),
        **dict.fromkeys(ATTENTION, Role.ATTENTION),
    }
    assert roles == expected


def test_the_edges_of_a_denoiser_are_known():
    model = unet()
    made = {node: value for value, node in by_output(model).items()}
    graph = model.graph.graph
    assert {made[node]: why for node, why in edge_layers(graph, roles_of(graph)).items()} == EDGES


@pytest.mark.parametrize("target", ["openvino", "tensorrt", "cuda", "cuda fp8"])
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("1", CONVOLUTIONS),
        ("2", CONVOLUTIONS | FEED_FORWARD),
        ("2.5", CONVOLUTIONS | FEED_FORWARD | PROJECTIONS),
        ("3", CONVOLUTIONS | FEED_FORWARD | PROJECTIONS | LINEAR),
    ],
)
def test_a_level_allows_what_its_number_says(level: str, expected: set[str], target: str):
    has_rule = BY_NAME[target].rule("Conv") is not None
    assert int8_layers(unet(), level, target) == expected - (set() if has_rule else CONVOLUTIONS)


def test_level_4_adds_attention_where_the_target_has_it():
    below = CONVOLUTIONS | FEED_FORWARD | PROJECTIONS | LINEAR
    assert int8_layers(unet(), "4", "openvino") == below | ATTENTION


def test_auto_allows_the_edges_too():
    assert set(EDGES) - {"time1", "time2", "time3"} <= int8_layers(unet(), "auto", "openvino")
    assert left_in_float(unet().graph.graph, "auto") == {}


def test_decisions_say_which_level_left_a_layer_in_float():
    model = unet()
    placement = place_by_config(model.graph, CUDA, QuantizeConfig(quantization_level="2"))
    reasons = {row.node: row.reason for row in placement.decisions}
    names = by_output(model)
    assert reasons[names["q1"]] == "left in float by quantization level 2: projection of attention"
    assert reasons[names["conv_in"]] == (
        "left in float by quantization level 2: it reads an input of the model"
    )


def test_an_exclusion_of_the_user_is_named_first():
    model = unet()
    name = by_output(model)["conv1"]
    config = QuantizeConfig(quantization_level="1", exclude=(name,))
    reasons = {row.node: row.reason for row in place_by_config(model.graph, CUDA, config).decisions}
    assert reasons[name] == f"excluded by '{name}'"


def test_attention_that_a_target_cannot_have_in_8_bits_is_told():
    model, inputs = unet(), _inputs()
    wanted = quantized(model, CUDA, inputs, quantization_level="4")
    if not any(row.is_int8 for row in wanted.placement.decisions if row.node in _attention(model)):
        assert any("quantization level 4 is for attention too" in note for note in wanted.notes)
    assert not any("level" in note for note in quantized(model, CUDA, inputs, quantization_level="3").notes)


def test_a_level_without_layers_says_so():
    model = resnet()
    assert why_level_left_all(load_model(EXPORTED / "gates_dynamo.onnx").graph.graph, "1") == (
        "quantization level 1 is for convolution, and the model has none"
    )
    assert int8_layers(model, "1", "ort")


def test_an_unknown_level_is_refused():
    with pytest.raises(UsageError, match=r"unknown quantization level '5'"):
        QuantizeConfig(quantization_level="5")


@pytest.mark.parametrize("target", sorted(BY_NAME))
def test_levels_are_nested(target: str):
    chain = [int8_layers(unet(), level, target) for level in QUANTIZATION_LEVELS]
    assert all(low <= high for low, high in zip(chain, chain[1:], strict=False))


@pytest.mark.parametrize("path", sorted(EXPORTED.glob("attention_*.onnx")), ids=lambda path: path.stem)
def test_projections_are_found_in_every_spelling_of_attention(path: Path):
    """Each of these networks has projections q, k and v, or one for all, and an output layer o."""
    model = load_model(path)
    for graph in (model.graph.graph, for_gpu(model).graph.graph):
        roles = roles_of(graph)
        products = {node.name for node in graph if node.op_type in ("MatMul", "Gemm")} & roles.keys()
        assert {roles[name] for name in products} <= {
            Role.PROJECTION, Role.LINEAR, Role.ATTENTION, Role.FEED_FORWARD,
        }  # fmt: skip
        counts = {role: list(roles.values()).count(role) for role in Role}
        assert counts[Role.PROJECTION] and counts[Role.LINEAR] and counts[Role.ATTENTION]


@pytest.mark.parametrize("path", sorted(EXPORTED.glob("attention_torchscript_f*.onnx")), ids=lambda p: p.stem)
def test_roles_agree_with_the_names_of_an_exporter_that_has_names(path: Path):
    roles = roles_of(load_model(path).graph.graph)
    for name, role in roles.items():
        layer = name.split("/")[-2]
        if role in (Role.PROJECTION, Role.LINEAR):
            if layer != "inner":  # one name for projections and output of torch.nn.MultiheadAttention
                assert (role is Role.LINEAR) == (layer == "o"), name


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_feed_forward_layers_are_found_with_every_activation(exporter: str):
    model = load_model(EXPORTED / f"gates_{exporter}.onnx")
    assert set(roles_of(model.graph.graph).values()) == {Role.FEED_FORWARD}


def test_a_real_transformer_has_its_roles(shared_data):
    model = load_model(shared_data("models/cifar10_vit_tiny_d9.onnx"))
    roles = list(roles_of(model.graph.graph).values())
    blocks = 9
    assert roles.count(Role.FEED_FORWARD) == 2 * blocks
    assert roles.count(Role.ATTENTION) == 2 * blocks
    assert roles.count(Role.LINEAR) == blocks + 1


def _attention(model: Model) -> set[str]:
    return {name for name, role in roles_of(model.graph.graph).items() if role is Role.ATTENTION}


def _inputs():
    return {"sample": samples(4, 4, 4, 4), "time": samples(4, 8), "text": samples(4, 5, 6)}
