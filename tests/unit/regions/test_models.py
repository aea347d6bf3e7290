# SPDX-License-Identifier: Apache-2.0
"""Real models: what their regions are, and that computed one by one they give the model's results."""

from collections import Counter

import numpy as np
import pytest

from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.regions.partition import partition
from tests.unit.regions.check_partition import check_structure
from tests.unit.regions.evaluate_regions import run_regions

RELATIVE_TOLERANCE = 1e-5  # float32 sums in another order, over the depth of these networks
KNOWN_SIZES = {"batch": 2, "sequence": 512}
RATE = 16000

REGIONS = {
    "ad_toycar_autoencoder": {"Gemm": 10},
    "cifar10_efficientvit_b0": {
        "Conv": 50,
        "Gemm": 2,
        "Pool": 1,
        "LinearAttention": 4,
        "Rows": 1,
        "View": 29,
        "Host": 24,
        "Concat": 4,
    },
    "cifar10_mobilenetv3_small": {"Conv": 53, "Gemm": 1, "Pool": 10, "Rows": 9, "View": 1},
    "cifar10_resnet20": {"Conv": 19, "Gemm": 1, "Pool": 1, "View": 3, "Nodes": 2},
    "cifar10_resnet56": {"Conv": 55, "Gemm": 1, "Pool": 1, "View": 3, "Nodes": 2},
    "cifar10_resnet8": {"Conv": 9, "Gemm": 1, "Pool": 1, "View": 1},
    "cifar10_resnet8_large": {"Conv": 9, "Gemm": 1, "Pool": 1, "View": 1},
    "cifar10_vit_tiny_d9": {
        "Conv": 1,
        "Gemm": 37,
        "Attention": 9,
        "Rows": 19,
        "View": 83,
        "Host": 64,
        "Concat": 1,
        "Nodes": 2,
    },
    "kws_dscnn": {"Conv": 9, "Gemm": 1, "Pool": 1, "View": 1},
    "mobilenet_v1_025_224": {"Conv": 28, "Pool": 1, "View": 1},
    "silero_vad_16k_op15": {"Conv": 6, "Rows": 3, "View": 10, "Host": 6, "Concat": 1, "Nodes": 7},
    "ultraface_rfb320": {"Conv": 52, "Rows": 1, "View": 16, "Concat": 3},
    "vww_mobilenet_v1_025_96": {"Conv": 27, "Gemm": 1, "Pool": 1, "View": 1},
}


def random_input(spec, rng):
    shape = [dim if isinstance(dim, int) else KNOWN_SIZES[dim] for dim in spec.shape]
    return np.full(shape, RATE) if spec.dtype == "int64" else rng.standard_normal(shape).astype(spec.dtype)


@pytest.mark.parametrize("name", REGIONS)
def test_regions_of_real_models(name, shared_data, rng):
    model = load_model(shared_data(f"models/{name}.onnx"))
    regions = partition(model.graph)
    check_structure(model.graph, regions)
    counts = Counter(type(region.formula).__name__ for region in regions.regions)
    assert counts == REGIONS[name]
    feeds = {spec.name: random_input(spec, rng) for spec in model.inputs}
    outputs = run_regions(model.graph, regions, feeds)
    for spec, want in zip(
        model.outputs, float_session(model.graph, optimize=False).run(None, feeds), strict=True
    ):
        assert outputs[spec.name].shape == want.shape
        scale = float(np.abs(want).max()) or 1.0
        np.testing.assert_allclose(outputs[spec.name], want, rtol=0, atol=RELATIVE_TOLERANCE * scale)


@pytest.mark.parametrize("name", ["cifar10_resnet20", "cifar10_resnet56", "cifar10_resnet8"])
def test_residual_networks_have_no_elementwise_region(name, shared_data):
    """Every Relu and every residual sum is in a convolution's epilogue."""
    graph = load_model(shared_data(f"models/{name}.onnx")).graph
    regions = partition(graph)
    op_types = {node.name: node.op_type for node in graph.graph}
    alone = [op_types[region.nodes[0]] for region in regions.regions if len(region.nodes) == 1]
    assert not {"Add", "Relu"} & set(alone)
    assert regions.mismatches == ()


def test_partitioning_twice_gives_the_same(shared_data):
    path = shared_data("models/cifar10_vit_tiny_d9.onnx")
    assert partition(load_model(path).graph) == partition(load_model(path).graph)
