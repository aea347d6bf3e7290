# SPDX-License-Identifier: Apache-2.0
"""The codes of a converted model are those of the prepared module's forward."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

from benchmarks.nets.cifar_nets import load_cifar_net
from benchmarks.tasks.real_data import cifar_images
from quantrt.errors import ModelError, UsageError
from quantrt.ir.session import float_session
from quantrt.torch.qat import convert, prepare
from tests.unit.torch.qat import nets

PREP = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "order": "rgb"}

NEAR_TIE = 1e-3
"""Of a step: how far from the middle between two codes float sums in another order can move a value here."""


def codes_of(model: ir.Model, feed) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For every QuantizeLinear, by the value's name: steps before rounding, and the codes behind a Clip."""
    model = model.clone()
    model.graph.sort()
    made, grids = {}, {}
    for node in model.graph:
        if node.op_type == "QuantizeLinear":
            clip = [user for user in node.outputs[0].consumers() if user.op_type == "Clip"]
            codes = clip[0].outputs[0] if clip else node.outputs[0]
            name = node.name.rstrip("_").removesuffix("_quantize")
            made[name] = (node.inputs[0].name, codes.name)
            grids[name] = node.inputs[1].const_value.numpy()
    names = [name for pair in made.values() for name in pair]
    taps = [name for name in names if name not in feed]
    arrays = dict(
        zip(taps, float_session(model, extra_outputs=taps, optimize=False).run(taps, feed), strict=True)
    )
    arrays |= feed
    return {name: (arrays[x] / grids[name], arrays[codes]) for name, (x, codes) in made.items()}


def compare_codes(prepared, x) -> tuple[int, int]:
    """How many codes there are, and how many differ; those that differ first in a sample have to be ties."""
    model = convert(prepared)
    total = differing = 0
    for sample in x.split(1):
        found = codes_of(model, {model.graph.inputs[0].name: sample.numpy()})
        wanted = prepared.codes(sample)
        assert wanted.keys() == found.keys()
        is_first = True
        for name, (steps, codes) in found.items():
            total += codes.size
            where = codes != wanted[name]
            if where.any() and is_first:
                is_first = False
                assert (np.abs(codes[where].astype(int) - wanted[name][where].astype(int)) == 1).all(), name
                assert (np.abs(np.abs(steps - np.floor(steps)) - 0.5)[where] < NEAR_TIE).all(), name
            differing += int(where.sum())
    return total, differing


def make_exact(prepared):
    """Scales become powers of two and constants few-bit numbers: float sums are exact in any order."""
    with torch.no_grad():
        for _, module in prepared.quantizers():
            module.first_scale.copy_(torch.exp2(torch.round(torch.log2(module.first_scale))))
        for parameter in prepared.network.parameters():
            if parameter.ndim == 1 and parameter.numel() > 1:
                parameter.copy_(torch.round(parameter * 16) / 16)


@pytest.mark.parametrize("target", ["ort", "cuda"])
def test_every_code_is_equal_where_float_sums_are_exact(made, target):
    prepared = made("resnet", target).eval()
    make_exact(prepared)
    x = torch.round(nets.images(8, 5) * 64) / 64
    total, differing = compare_codes(prepared, x)
    assert total > 8 * 5000
    assert differing == 0


@pytest.mark.parametrize(("kind", "target"), [("resnet", "cuda"), ("transformer", "openvino")])
def test_codes_differ_only_from_ties_on(made, kind, target):
    prepared = made(kind, target).eval()
    x = nets.images(8, 5) if kind == "resnet" else nets.ids(8, 5)
    total, differing = compare_codes(prepared, x)
    assert total > 8 * 400
    assert differing < 0.005 * total


def test_codes_of_a_real_network_on_real_pictures(shared_data):
    net = load_cifar_net(shared_data("models/cifar10_resnet20.onnx"))
    shared_data("images/cifar10_calibration.zip")
    pictures = torch.from_numpy(cifar_images("calibration", 24, PREP)[0])
    prepared = prepare(net, pictures[:2], [pictures[:16]], target="ort").eval()
    total, differing = compare_codes(prepared, pictures[16:])
    assert total > 8 * 100_000
    assert differing < 0.005 * total


@pytest.mark.parametrize("kind", ["resnet", "transformer"])
def test_weights_and_scales_are_the_trained_ones(made, kind):
    prepared = made(kind, "ort").train()
    x = nets.images(8, 5) if kind == "resnet" else nets.ids(8, 5)
    before = convert(prepared)
    optimizer = torch.optim.AdamW(prepared.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(x).square().sum().backward()
        optimizer.step()
    prepared.eval()
    after = convert(prepared)
    assert before.graph.initializers.keys() == after.graph.initializers.keys()
    changed = [
        name
        for name, value in after.graph.initializers.items()
        if not np.array_equal(value.const_value.numpy(), before.graph.initializers[name].const_value.numpy())
    ]
    quantized = [name for name in after.graph.initializers if name.endswith("_quantized")]
    assert {name for name in quantized if name in changed} == set(quantized)
    (output,) = float_session(after, optimize=False).run(None, {after.graph.inputs[0].name: x.numpy()})
    with torch.no_grad():
        wanted = prepared(x).numpy()
    assert np.abs(wanted - output).max() < 0.02 * np.abs(wanted).max()  # a code beside a tie may differ


def test_the_file_is_the_model(made, tmp_path):
    prepared = made("resnet", "ort").eval()
    path = tmp_path / "net.onnx"
    convert(prepared, path)
    x = nets.images(4, 6).numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x[:1]})[0].shape == (1, 5)
    model = convert(prepared)
    stored = {
        init.const_value.dtype for name, init in model.graph.initializers.items() if "_quantized" in name
    }
    assert ir.DataType.INT8 in stored


def test_another_module_is_refused():
    with pytest.raises(UsageError, match="cannot convert this module"):
        convert(nets.resnet())


def test_a_diverged_module_is_refused(made):
    prepared = made("resnet", "tensorrt")
    with torch.no_grad():
        prepared.network.head.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"head\.weight"):
        convert(prepared)
