# SPDX-License-Identifier: Apache-2.0
"""Real models compute after loading what they computed before."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from quantrt.ir.session import float_session
from quantrt.ir.sources import sources_of
from quantrt.model.load import load_model

FLOAT_MODELS = (
    "ad_toycar_autoencoder",
    "cifar10_efficientvit_b0",
    "cifar10_mobilenetv3_small",
    "cifar10_resnet20",
    "cifar10_resnet56",
    "cifar10_resnet8",
    "cifar10_resnet8_large",
    "cifar10_vit_tiny_d9",
    "kws_dscnn",
    "mobilenet_v1_025_224",
    "silero_vad_16k_op15",
    "ultraface_rfb320",
    "vww_mobilenet_v1_025_96",
)
QUANTIZED_MODELS = (
    "ort_cifar10_resnet20_perchannel",
    "ort_mobilenet_v1_025_224_pertensor",
    "tflite_ad_toycar_autoencoder",
    "tflite_kws_dscnn",
    "tflite_mobilenet_v2_10_224_qat_pertensor",
)
CASES = tuple(f"models/{name}.onnx" for name in FLOAT_MODELS) + tuple(
    f"qdq_models/{name}.qdq.onnx" for name in QUANTIZED_MODELS
)
KNOWN_SIZES = {"batch": 2, "sequence": 512}
# Folding a batch norm rounds each weight once more: float32 epsilon over the depth of these networks.
RELATIVE_TOLERANCE = 1e-5


def reference_session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def random_input(spec, rng):
    shape = [dim if isinstance(dim, int) else KNOWN_SIZES[dim] for dim in spec.shape]
    if spec.dtype == "int64":
        return np.full(shape, 16000)  # the one whole-number input is a sampling rate
    return rng.standard_normal(shape).astype(spec.dtype)


@pytest.mark.parametrize("name", CASES)
def test_results_are_equal(name, shared_data, rng):
    path = shared_data(name)
    model = load_model(path)
    reference = reference_session(path)
    assert [spec.name for spec in model.inputs] == [value.name for value in reference.get_inputs()]
    assert [spec.name for spec in model.outputs] == [value.name for value in reference.get_outputs()]
    feeds = {spec.name: random_input(spec, rng) for spec in model.inputs}
    got = float_session(model.graph, optimize=False).run(None, feeds)
    for mine, theirs in zip(got, reference.run(None, feeds), strict=True):
        scale = float(np.abs(theirs).max()) or 1.0
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=RELATIVE_TOLERANCE * scale)


@pytest.mark.parametrize("name", CASES)
def test_nodes_account_for_the_file(name, shared_data):
    """Names are unique, every shape of the main graph is known, and no quantization node is lost."""
    path = shared_data(name)
    graph = load_model(path).graph
    names = Counter(node.name for node in graph.graph.all_nodes())
    assert max(names.values()) == 1
    assert all(sources_of(node) for node in graph.graph)
    if "silero" not in name:  # its branches differ in shape
        assert all(value.shape is not None for node in graph.graph for value in node.outputs)
    before, after = (
        Counter(op_type for op_type in op_types if op_type in ("QuantizeLinear", "DequantizeLinear", "If"))
        for op_types in (
            [node.op_type for node in onnx.load(path).graph.node],
            [node.op_type for node in graph.graph],
        )
    )
    assert before == after


@pytest.mark.parametrize("name", CASES)
def test_loading_twice_gives_the_same(name, shared_data):
    path = shared_data(name)
    one, two = load_model(path), load_model(path)
    assert one.fingerprint == two.fingerprint
    assert [node.name for node in one.graph.graph] == [node.name for node in two.graph.graph]
    assert one.changes == two.changes


def test_batch_norms_and_constants_are_gone(shared_data):
    for name in ("mobilenet_v1_025_224", "cifar10_resnet8", "cifar10_vit_tiny_d9", "cifar10_efficientvit_b0"):
        graph = load_model(shared_data(f"models/{name}.onnx")).graph
        assert not {"BatchNormalization", "Constant", "Identity"} & {node.op_type for node in graph.graph}
