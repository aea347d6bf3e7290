# SPDX-License-Identifier: Apache-2.0
"""Where fake quantization goes, what stays of the module, and what is refused."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from quantrt.config import QuantizeConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.ir.session import float_session
from quantrt.model.load import make_model
from quantrt.quantize.placement.placement import place
from quantrt.quantize.targets import target_named
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.torch.qat import convert, prepare
from tests.unit.torch.qat import nets


class Tiny(nn.Module):
    """Two linear layers, one of them with a weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x, shift):
        y = torch.relu(self.first(x)) + shift
        return self.second(torch.relu(self.first(y)))


def tiny_inputs(count=4):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 8, generator=generator), torch.randn(count, 8, generator=generator)


def test_the_placement_is_that_of_the_exported_graph(made):
    for kind, target in (("resnet", "ort"), ("transformer", "tensorrt")):
        recipe = made(kind, target).recipe
        exported = place(make_model(recipe.onnx).graph, target_named(target))
        if kind == "resnet":
            assert recipe.placement == exported
        products = {"Conv", "Gemm", "MatMul"}
        wanted = {row.node: row.is_int8 for row in exported.decisions if row.op_type in products}
        got = {row.node: row.is_int8 for row in recipe.placement.decisions if row.op_type in products}
        assert got == wanted
        assert sum(got.values()) >= 6


def test_in_floats_it_is_the_module():
    config = QuantizeConfig(bias_correction=False, equalization=False)
    for net, x in ((nets.resnet(), nets.images(4, 9)), (nets.transformer(), nets.ids(4, 9))):
        prepared = prepare(net, x, [x], config=config).eval()
        with torch.no_grad():
            wanted, rounded = net(x), prepared(x)
            with prepared.in_floats():
                assert torch.allclose(prepared(x), wanted, rtol=1e-5, atol=1e-6)
            assert torch.equal(prepared(x), rounded)
        noise = (rounded - wanted).square().sum() / wanted.square().sum()
        assert 0 < noise < 0.1  # ranges of random networks from few samples


def test_norms_are_folded_and_the_rest_keeps_its_name(made):
    prepared = made("resnet", "ort")
    names = {name for name, _ in prepared.network.named_parameters() if "fake_quantize" not in name}
    given = {
        name for name, _ in nets.resnet().named_parameters() if "norm" not in name and "side.1" not in name
    }
    assert given < names
    assert names - given == {
        f"{name}.bias"
        for name in ("block1.conv1", "block1.conv2", "block2.conv1", "block2.conv2", "block2.side.0")
    }
    assert "6 batch normalizations are part of the weights before them, frozen" in prepared.notes


def test_dropout_follows_train_and_eval(made):
    prepared, x = made("resnet", "ort"), nets.images(8, 4)
    with torch.no_grad():
        prepared.eval()
        assert torch.equal(prepared(x), prepared(x))
        prepared.train()
        torch.manual_seed(1)
        assert not torch.equal(prepared(x), prepared(x))


DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@pytest.mark.parametrize("kind", DROPOUTS, ids=lambda kind: kind.__name__)
def test_every_kind_of_dropout_stays(kind: type[nn.Module]):
    """Two in a row: of the same kind, and plain."""
    axes = {nn.Dropout1d: 1, nn.Dropout3d: 3}.get(kind, 2)
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    net = nn.Sequential(conv(3, 8, 1), nn.ReLU(), kind(0.5), nn.Dropout(0.25), conv(8, 2, 1)).eval()
    x = torch.randn((8, 3, *(4,) * axes), generator=torch.Generator().manual_seed(0))
    prepared = prepare(net, x[:2], x.split(4), target="ort")
    kinds = [type(module) for module in prepared.modules() if "Dropout" in type(module).__name__]
    assert kinds == [kind, nn.Dropout]
    with torch.no_grad():
        assert torch.equal(prepared.eval()(x), prepared(x))
        assert not torch.equal(prepared.train()(x), prepared(x))


@pytest.mark.parametrize(
    "wrap",
    [partial(torch.compile, backend="eager"), nn.DataParallel],
    ids=["torch.compile", "DataParallel"],
)
def test_of_a_wrapped_module_what_is_inside_is_prepared(wrap):
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), torch.randn(8, 8)
    found = prepare(wrap(net), x[:2], x.split(4), target="ort")
    assert found.state_dict().keys() == prepare(net, x[:2], x.split(4), target="ort").state_dict().keys()


def test_a_module_of_short_floats_or_prepared_already_is_refused():
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), torch.randn(8, 8)
    prepared = prepare(net, x[:2], x.split(4), target="ort")
    with pytest.raises(UsageError, match="cannot prepare a module twice"):
        prepare(prepared, x[:2], x.split(4), target="ort")
    for dtype in (torch.float16, torch.bfloat16):
        net.to(dtype)
        with pytest.raises(UsageError, match=f"parameter '0.weight' of {dtype}") as caught:
            prepare(net, x[:2].to(dtype), x.to(dtype).split(4), target="ort")
        assert "torch.autocast" in str(caught.value.hint)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions_train_in_mixed_precision(axes: int):
    conv, transposed = (
        (nn.Conv1d, nn.ConvTranspose1d),
        (nn.Conv2d, nn.ConvTranspose2d),
        (nn.Conv3d, nn.ConvTranspose3d),
    )[axes - 1]
    up = transposed(4, 6, 3, 2, padding=1, output_padding=1, groups=2, bias=False)
    net = nn.Sequential(conv(3, 4, 1), nn.ReLU(), up, nn.ReLU(), conv(6, 2, 1)).eval()
    x = torch.randn((4, 3, *(4,) * axes), generator=torch.Generator().manual_seed(0))
    prepared = prepare(net, x[:2], x.split(2), target="openvino")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prepared.train()(x).float().sum().backward()
    assert prepared.get_parameter("network.2.weight").grad is not None
    with torch.no_grad():
        ratio = (prepared.eval()(x) - net(x)).square().sum() / net(x).square().sum()
    assert ratio < 1e-2  # 20 dB: rounding alone


@pytest.mark.parametrize("kind", ["resnet", "transformer"])
def test_all_of_it_moves_to_another_device(made, kind):
    prepared = made(kind, "ort").to("meta").train()
    inputs = nets.images(4, 9) if kind == "resnet" else nets.ids(4, 9)
    output = prepared(inputs.to("meta"))  # a constant left behind would be refused
    output.sum().backward()
    assert output.device.type == "meta"
    assert all(parameter.grad.device.type == "meta" for parameter in prepared.parameters())


def test_the_module_given_is_left_alone(made):
    net = nets.resnet().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    made("resnet", "ort")
    prepared = prepare(net, nets.images(2, 2), [nets.images(4, 3)], learn_scales=False)
    with torch.no_grad():
        for parameter in prepared.parameters():
            parameter.add_(1.0)
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not any("ratio" in name for name, _ in prepared.named_parameters())
    assert "fake_quantize.activation_x.ratio" in dict(prepared.network.named_buffers())


def test_several_inputs_and_a_weight_that_is_used_twice():
    inputs = tiny_inputs()
    net = Tiny().eval()
    prepared = prepare(net, inputs, [inputs], target="tensorrt")
    weights = [name for name, module in prepared.quantizers() if ".weight_" in name]
    assert len(weights) == 3  # one for each use
    with torch.no_grad():
        assert torch.allclose(prepared(*inputs), net(*inputs), atol=0.1)
        assert prepared(*tiny_inputs(7)).shape == (7, 8)


def test_exclusions_and_reasons():
    inputs = tiny_inputs()
    prepared = prepare(
        Tiny(), inputs, [inputs], target="tensorrt", config=QuantizeConfig(exclude=("node_linear_2",))
    )
    reasons = {row.node: row.reason for row in prepared.decisions if not row.is_int8}
    assert "node_linear_2" in reasons


def test_calibration_in_other_forms():
    x, shift = tiny_inputs()
    stated = {"x": x.numpy(), "shift": shift.numpy()}
    labelled = [(x, shift, torch.zeros(4))]
    net, scales = Tiny(), []
    for calibration in (stated, labelled, [{"x": x, "shift": shift}]):
        prepared = prepare(net, (x, shift), calibration, target="tensorrt")
        scales.append(prepared.network.get_submodule("fake_quantize.activation_x").first_scale.item())
    assert scales[0] == scales[1] == scales[2]
    with pytest.raises(DataError, match="too few inputs"):
        prepare(net, (x, shift), [x], target="tensorrt")


def test_what_cannot_be_prepared():
    x, shift = tiny_inputs()
    with pytest.raises(UsageError, match="unknown target 'openvin'"):
        prepare(Tiny(), (x, shift), [(x, shift)], target="openvin")

    with pytest.raises(UsageError, match="cannot train for target 'cuda fp8'"):
        prepare(Tiny(), (x, shift), [(x, shift)], target=CUDA_FP8)

    with pytest.raises(UsageError, match="unknown target 'CUDA'") as caught:
        prepare(Tiny(), (x, shift), [(x, shift)], target="CUDA")
    assert caught.value.expected == "one of ort, openvino, tensorrt, cuda"

    with pytest.raises(UsageError, match="what is no module") as caught:
        prepare(torch.relu, x, [x])  # type: ignore[arg-type]
    assert caught.value.got == "builtin_function_or_method"

    with pytest.raises(UsageError, match="cannot trace with one sample") as caught:
        prepare(Tiny(), (x[:1], shift[:1]), [(x, shift)])
    assert caught.value.got == f"example_inputs of {list(x[:1].shape)}, {list(shift[:1].shape)}"

    with pytest.raises(DataError, match="no samples in 'Python TorchBatches'"):
        prepare(Tiny(), (x, shift), [])

    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError, match="torch cannot export Branches"):
        prepare(Branches(), x, [x])
    with pytest.raises(ModelError, match="nothing of ReLU can be quantized"):
        prepare(nn.ReLU(), x, [x])


class Awkward(nn.Module):
    """A factor behind a convolution, a transposed and a depthwise one, two outputs."""

    def __init__(self):
        super().__init__()
        self.scaled = nn.Conv2d(3, 8, 3)
        self.factor = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.depthwise = nn.Conv2d(4, 4, 3, groups=4)

    def forward(self, x):
        y = self.scaled(x) * self.factor
        return self.depthwise(self.up(functional.silu(y))), y


def test_what_has_no_edge_in_the_module_stays_float_and_says_so():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    prepared = prepare(Awkward(), x, [x], target="openvino").eval()
    rows = {row.op_type: row for row in prepared.decisions if row.op_type != "Conv"}
    convolutions = [row for row in prepared.decisions if row.op_type == "Conv"]
    assert [row.is_int8 for row in convolutions] == [False, True]
    assert convolutions[0].reason == "its weight is computed from several parameters"
    assert rows["ConvTranspose"].is_int8
    made = float_session(convert(prepared), optimize=False).run(None, {"x": x.numpy()})
    with torch.no_grad():
        for got, wanted in zip(made, prepared(x), strict=True):
            assert np.allclose(got, wanted.numpy(), atol=1e-5)


def test_a_large_table_has_codes_for_gpus():
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(30_000, 64)
            self.layer = nn.Linear(64, 16)

        def forward(self, ids):
            return self.layer(self.table(ids).mean(1))

    ids = nets.ids(4, 1)
    prepared = prepare(Lookup(), ids, [ids], target="cuda").eval()
    model = convert(prepared)
    assert "table.weight_quantized" in model.graph.initializers
    (got,) = float_session(model, optimize=False).run(None, {"ids": ids.numpy()})
    assert np.allclose(got, prepared(ids).detach().numpy(), atol=1e-6)


def test_products_of_torchs_own_attention_are_found():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids, padding):
            return self.head(self.layer(self.embed(ids), src_key_padding_mask=padding))

    torch.manual_seed(0)
    ids = nets.ids(4, 1)
    padding = torch.zeros(4, 6, dtype=torch.bool)
    padding[0, 4:] = True
    prepared = prepare(Model(), (ids, padding), [(ids, padding)], target="openvino")
    assert sum(row.is_int8 for row in prepared.decisions if row.op_type in ("MatMul", "Gemm")) == 7
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    prepared.train()(ids, padding).square().mean().backward()
    optimizer.step()
    prepared.eval()
    feed = {"ids": ids.numpy(), "padding": padding.numpy()}
    (got,) = float_session(convert(prepared), optimize=False).run(None, feed)
    with torch.no_grad():
        assert np.allclose(got, prepared(ids, padding).numpy(), atol=1e-4)


def test_outputs_may_be_a_dict():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return {"logits": self.layer(x)}

    x, _ = tiny_inputs()
    prepared = prepare(Named(), x, [x], target="tensorrt")
    assert prepared(x)["logits"].shape == (4, 3)
    assert np.isfinite(prepared(x)["logits"].detach().numpy()).all()


def test_parts_of_a_tensor_are_no_sequence():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(8, 16)
            self.narrow = nn.Linear(8, 3)

        def forward(self, x):
            y, gate = self.wide(x).chunk(2, 1)
            return self.narrow(y * torch.sigmoid(gate))

    torch.manual_seed(0)
    x, _ = tiny_inputs()
    prepared = prepare(Gated(), x, [x], target="openvino").eval()
    model = convert(prepared)
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("Split") == 1
    assert not any("Sequence" in kind for kind in kinds)
    (got,) = float_session(model, optimize=False).run(None, {"x": x.numpy()})
    assert np.allclose(got, prepared(x).detach().numpy(), atol=1e-5)
