# SPDX-License-Identifier: Apache-2.0
"""Channels that were equalized before quantization: the factors are found in the weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CompareConfig
from quantrt.ir.session import float_session
from quantrt.model.file.save import save_model
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.openvino.taps import tensors_of_openvino
from quantrt.plan.plan import ExecOptions, Plan
from quantrt.plan.serialize import save_plan
from quantrt.quantize.algorithms.equalization import SUFFIX, choose_scales, scale_channels
from quantrt.quantize.algorithms.smoothing import MULTIPLIED, Smoothing, choose_smoothing, smooth
from quantrt.quantize.qdq.switches import FLAGS, switch_layers
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.reference.metrics import sqnr_db
from quantrt.report.compare.compare import compare
from quantrt.report.layer_errors.equalized import unscaled_twin, with_fitted_scales
from quantrt.report.layer_errors.from_openvino import from_openvino_engine
from quantrt.report.subject import open_subject
from tests.nets import net, quantized, samples, weights

UNEVEN = np.array([1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001], np.float32)

NETS = {
    "depthwise": "h = Conv(x, w, b) r = Relu(h) d = Conv<group=8, pads=[1,1,1,1]>(r, dw) y = Conv(d, v)",
    "two readers": "h = Conv(x, w, b) r = Relu(h) s = Conv(r, v) t = Conv(r, v2) y = Add(s, t)",
    "classifier": "h = Conv(x, w) p = GlobalAveragePool(h) f = Flatten(p) y = Gemm(f, m)",
    "stream": "h = Conv(x, w, b) d = Conv<pads=[1,1,1,1]>(h, both) s = Add(h, d) y = Conv(s, back)",
    "norm": "n = LayerNormalization<axis = -1>(x, gamma, beta) y = MatMul(n, wide)",
}
SHAPES = {
    "w": (8, 8, 3, 3),
    "b": (8,),
    "dw": (8, 1, 3, 3),
    "v": (5, 8, 1, 1),
    "v2": (5, 8, 1, 1),
    "m": (8, 5),
    "gamma": (8,),
    "beta": (8,),
    "wide": (8, 24),
    "both": (8, 8, 3, 3),
    "back": (5, 8, 1, 1),
}


def uneven(body: str) -> Model:
    """A net whose first layer makes channels of very different size."""
    arrays = weights(SHAPES)
    arrays["w"] *= UNEVEN.reshape(-1, 1, 1, 1)
    arrays["b"] *= UNEVEN
    arrays["gamma"] = UNEVEN * 3
    arrays["both"] *= UNEVEN.reshape(-1, 1, 1, 1) / UNEVEN.reshape(1, -1, 1, 1)
    arrays["back"] /= UNEVEN.reshape(1, -1, 1, 1)
    shape = "float[N,5]" if "Gemm" in body else "float[N,c,i,j]"
    used = {name: array for name, array in arrays.items() if f" {name})" in body or f" {name}," in body}
    return net(f"net (float[N,8,8,8] x) => ({shape} y) {{ {body} }}", used)


def smoothable() -> Model:
    """A residual sum reads what a product reads: no constants of its maker can be divided for that alone."""
    arrays = weights({"gamma": (8,), "beta": (8,), "square": (8, 8)})
    arrays["gamma"] = UNEVEN * 3
    arrays["square"] /= UNEVEN[:, None] ** 0.5
    body = "n = LayerNormalization<axis = -1>(x, gamma, beta) m = MatMul(n, square) y = Add(m, n)"
    return net(f"net (float[N,8,8,8] x) => (float[N,c,i,j] y) {{ {body} }}", arrays)


X = {"x": samples(8, 8, 8, 8)}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("target", [ORT, OPENVINO], ids=lambda target: target.name)
def test_factors_are_found_in_the_weights(name: str, target):
    model = uneven(NETS[name])
    scales = choose_scales(model.graph, [X], qmax=127)
    assert scales, "there is something to equalize"
    changed = replace(model, graph=scale_channels(model.graph, scales))
    fake = write(quantized(changed, target, X))
    found = with_fitted_scales(model, fake)
    x = {"x": samples(6, 8, 8, 8, seed=7)}
    tapped = [
        value.name for node in changed.graph.graph for value in node.outputs if SUFFIX in (value.name or "")
    ]
    assert tapped
    wanted, got = (
        float_session(graph, extra_outputs=tapped).run(["y", *tapped], x)
        for graph in (changed.graph, found.graph)
    )
    for a, b in zip(wanted, got, strict=True):
        assert sqnr_db(a, b) > 55, "as good as the float model that was quantized"


@pytest.mark.parametrize("target", [ORT, OPENVINO], ids=lambda target: target.name)
def test_factors_of_multiplications_are_read(target):
    model = smoothable()
    smoothing = choose_smoothing(model.graph, [X], qmax=127)
    assert smoothing.multiplied, "there is something to smooth"
    changed = replace(model, graph=smooth(model.graph, smoothing))
    found = with_fitted_scales(model, write(quantized(changed, target, X)))
    x = {"x": samples(6, 8, 8, 8, seed=7)}
    taps = [f"{name}{MULTIPLIED}" for name in smoothing.multiplied]
    wanted, got = (
        float_session(graph, extra_outputs=taps).run(["y", *taps], x)
        for graph in (changed.graph, found.graph)
    )
    for a, b in zip(wanted, got, strict=True):
        assert sqnr_db(a, b) > 100


def test_of_a_model_without_equalization_nothing_changes():
    model = uneven(NETS["depthwise"])
    fake = write(quantized(model, ORT, X))
    assert with_fitted_scales(model, fake) is model
    assert unscaled_twin(model, {"h", "r"}) is model


def two_products() -> Model:
    """Two products that read the same residual stream, one of which may stay float."""
    arrays = weights({"gamma": (8,), "beta": (8,), "square": (8, 8), "last": (8, 6)})
    arrays["gamma"] = UNEVEN * 3
    for name in ("square", "last"):
        arrays[name] /= UNEVEN[:, None] ** 0.5
    body = """n = LayerNormalization<axis = -1>(x, gamma, beta) m = MatMul(n, square) r = Add(m, n)
      y = MatMul(r, last)"""
    return net(f"net (float[N,8,8,8] x) => (float[N,c,i,j] y) {{ {body} }}", arrays)


def test_a_smoothed_product_that_stays_float_has_the_engines_weight():
    model = two_products()
    smoothing = Smoothing(multiplied=dict.fromkeys(("n", "r"), np.linspace(0.5, 2, 8, dtype=np.float32)))
    changed = replace(model, graph=smooth(model.graph, smoothing))
    last = next(node.name for node in changed.graph.graph if node.outputs[0].name == "y")
    fake = write(quantized(changed, OPENVINO, X, exclude=(last,)))
    engine = lower_to_openvino(fake)
    found = write(from_openvino_engine(unscaled_twin(model, tensors_of_openvino(engine)), engine))
    (want,), (got,) = (float_session(graph).run(["y"], X) for graph in (fake, found))
    assert sqnr_db(want, got) > 100, "one product is rounded, the other is not"


@pytest.mark.parametrize("name", ["depthwise", "norm", "multiplied"])
@pytest.mark.parametrize("library", ["onnx", "onnxruntime", "openvino"])
def test_the_layers_of_an_equalized_model_are_compared(library: str, name: str, tmp_path: Path):
    """Errors are those against the equalized float model, within what the fit of its factors leaves open."""
    path = tmp_path / "float.onnx"
    save_model((smoothable() if name == "multiplied" else uneven(NETS[name])).graph, path)
    model = load_model(path)
    if name == "multiplied":
        changed = replace(model, graph=smooth(model.graph, choose_smoothing(model.graph, [X], qmax=127)))
    else:
        changed = replace(model, graph=scale_channels(model.graph, choose_scales(model.graph, [X], qmax=127)))
    fake = write(quantized(changed, OPENVINO if library == "openvino" else ORT, X))
    subject = tmp_path / ("q.onnx" if library == "onnx" else "q.qrt")
    if library == "onnx":
        save_model(fake, subject)
    else:
        lower = lower_to_openvino if library == "openvino" else lower_to_onnxruntime
        save_plan(
            Plan(
                model=lower(fake),
                options=ExecOptions(),
                inputs=model.inputs,
                outputs=model.outputs,
                precision="int8",
                layers=(),
                fingerprint=model.fingerprint,
                device={},
            ),
            subject,
        )
    x = {"x": samples(6, 8, 8, 8, seed=7)}
    with open_subject(path) as a, open_subject(subject) as b:
        data = compare(a, b, open_dataset(x, a.inputs), CompareConfig(), layers=True)["three_way"]
    switched = switch_layers(fake, changed.graph)
    session = float_session(switched.graph, optimize=False)
    floats = session.run(["y"], {**x, FLAGS: switched.flags()})[0]
    for layer, row in zip(switched.layers, data["layers"], strict=True):
        assert layer.name == row["name"]
        one = session.run(["y"], {**x, FLAGS: switched.flags(layer.index)})[0]
        measured = next(r for r in data["damage"]["worst"] if r["layers"] == [layer.name])
        assert measured["alone_db"] == pytest.approx(sqnr_db(floats, one), abs=0.5)
    assert data["engine"]["leaves_path_at"] is None
