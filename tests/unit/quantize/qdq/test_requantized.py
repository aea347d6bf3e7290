# SPDX-License-Identifier: Apache-2.0
"""Which float products ONNX Runtime would make int8 is told as it does it."""

from collections import Counter
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from quantrt.config import BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import Fitted, fit, observe_reference
from quantrt.quantize.qdq.requantized import requantized_products
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.reference.metrics import sqnr_db
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.engine_layers.timed import candidate_plan
from quantrt.runtime.onnxruntime.watch import optimized_graph
from quantrt.tactics.candidates import Candidate, Opener, Spec
from tests.nets import net, observe, ort_kernels, quantized, resnet, run_ort, samples, weights

FLOAT_PRODUCTS = {"Conv", "FusedConv", "Gemm", "FusedGemm"}
IMAGES = {"x": samples(2, 3, 16, 16)}


def floats_left(kernels) -> int:
    return sum(count for kind, count in kernels.items() if kind in FLOAT_PRODUCTS)


@pytest.mark.parametrize("name", ["Conv_0", "Conv_2", "Conv_4", "Conv_8", "Gemm_12"])
def test_what_is_told_is_what_onnx_runtime_does(name: str):
    graph = write(quantized(resnet(), ORT, IMAGES, exclude=(name,)))
    assert requantized_products(graph) in ((), (name,))
    assert floats_left(ort_kernels(graph)) == 1 - len(requantized_products(graph))


def test_a_layer_between_two_quantized_ones_is_told():
    graph = write(quantized(resnet(), ORT, IMAGES, exclude=("Conv_2",)))
    assert requantized_products(graph) == ("Conv_2",)
    assert not requantized_products(write(quantized(resnet(), ORT, IMAGES)))
    assert not requantized_products(resnet().graph)


@pytest.mark.parametrize(
    "text",
    [
        "h = Conv(d, w) s = Sigmoid(h) y = QuantizeLinear(s, one, z)",
        "h = Conv(d, w) y = QuantizeLinear(h, one, z) t = Relu(h)",
        "h = Conv(x, w) y = QuantizeLinear(h, one, z)",
    ],
    ids=["another activation", "another reader", "a float input"],
)
def test_a_product_without_codes_on_both_sides_is_left_alone(text: str):
    outputs = "uint8[N,4,4,4] y" + (", float[N,4,4,4] t" if "t =" in text else "")
    scale, zero = np.asarray(0.1, np.float32), np.asarray(3, np.uint8)
    model = net(
        f"g (float[N,3,4,4] x) => ({outputs}) "
        f"{{ q = QuantizeLinear(x, one, z) d = DequantizeLinear(q, one, z) {text} }}",
        weights({"w": (4, 3, 1, 1)}) | {"one": scale, "z": zero},
    )
    assert not requantized_products(model.graph)
    assert floats_left(ort_kernels(model.graph)) == 1


def test_engines_keep_such_a_layer_float_and_files_made_before_run_as_they_did():
    fitted = Fitted(quantized(resnet(), ORT, IMAGES, exclude=("Conv_2",)), "auto", {})
    found = Opener(resnet(), BuildConfig(), IMAGES).open(Spec("onnxruntime", "int8"), fitted)
    assert isinstance(found, Candidate) and found.kept_float == ("Conv_2",)
    with closing(found.executor):
        for options, floats in ((found.options, 1), (replace(found.options, keeps_floats=False), 0)):
            kernels = Counter(node.op_type for node in optimized_graph(found.model, options).graph.node)
            assert floats_left(kernels) == floats


def test_the_float_oracle_computes_what_is_written():
    graph = write(quantized(resnet(), ORT, IMAGES, exclude=("Conv_2",)))
    (written,) = float_session(graph, optimize=False).run(None, IMAGES)
    (oracle,) = float_session(graph).run(None, IMAGES)
    assert sqnr_db(written, oracle) > 100 > sqnr_db(written, run_ort(graph, IMAGES)[0])


def test_an_excluded_layer_of_a_trained_network_is_float_in_its_engine(shared_data):
    model = load_model(shared_data("models/cifar10_resnet20.onnx"))
    images = {"input": samples(4, 3, 32, 32)}
    config, calibration = QuantizeConfig(exclude=("Conv_8",)), CalibrationConfig()
    stats = observe(model, (ORT,), images, exclude=config.exclude)
    reference = observe_reference(model, [images], config)
    fitted = fit(model, stats, ORT, reference, config=config, calibration=calibration)
    found = Opener(model, BuildConfig(), images).open(Spec("onnxruntime", "int8"), fitted)
    assert isinstance(found, Candidate) and found.kept_float == ("Conv_8",)
    with closing(found.executor):
        layers = engine_layers(candidate_plan(found, model), shapes={"input": (1, 3, 32, 32)})
    (layer,) = [layer for layer in layers if "Conv_8" in layer.nodes]
    assert (layer.kind, layer.computes_in) == ("Conv", "fp32")
    assert sum(layer.kind == "QLinearConv" for layer in layers) == 18
