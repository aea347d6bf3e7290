# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from quantrt.config import AssignConfig, BuildConfig, DeviceConfig
from quantrt.errors import DeviceError
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.tactics import candidates
from quantrt.tactics.candidates import (
    Candidate,
    Opener,
    Rejected,
    Spec,
    int8_target,
    lacking_specs,
    list_specs,
    with_bf16,
)
from tests.nets import quantized, resnet, samples

PLAIN = {"isa": ["avx2"]}
BF16 = {"isa": ["avx2", "avx512_vnni", "avx512_bf16"]}


@pytest.mark.parametrize(
    ("precisions", "libraries", "device", "names"),
    [
        ({"fp32"}, ("onnxruntime", "openvino"), BF16, ["onnxruntime fp32", "openvino fp32"]),
        (
            {"fp32", "int8"},
            ("onnxruntime", "openvino"),
            PLAIN,
            ["onnxruntime fp32", "onnxruntime int8", "openvino fp32", "openvino int8"],
        ),
        ({"fp32", "bf16"}, ("openvino",), PLAIN, ["openvino fp32"]),
        ({"fp32", "bf16"}, ("onnxruntime",), BF16, ["onnxruntime fp32"]),
        (
            {"fp32", "bf16", "int8"},
            ("openvino",),
            BF16,
            ["openvino fp32", "openvino int8", "openvino bf16", "openvino int8+bf16"],
        ),
    ],
)
def test_specs_follow_the_config_and_the_cpu(precisions, libraries, device, names):
    config = BuildConfig(precisions=frozenset(precisions), device=DeviceConfig(libraries=libraries))
    assert [spec.name for spec in list_specs(config, device)] == names


@pytest.mark.parametrize(
    ("isa", "is_brought"),
    [
        (["avx2", "avx512_bf16"], True),
        (["amx_bf16"], True),
        (["sve_bf16"], True),
        (["avx2", "avx512_fp16"], False),
        ([], False),
    ],
)
def test_int8_brings_bf16_where_the_cpu_has_it(isa: list[str], is_brought: bool):
    config = BuildConfig(precisions=frozenset({"fp32", "int8"}))
    assert ("bf16" in with_bf16(config, {"isa": isa}).precisions) == is_brought


@pytest.mark.parametrize(
    "config",
    [
        BuildConfig(),
        BuildConfig(precisions=frozenset({"fp32", "int8"}), assign=AssignConfig(bf16_beside_int8=False)),
        BuildConfig(precisions=frozenset({"fp32", "int8"}), device=DeviceConfig(device="cuda")),
    ],
    ids=["without int8", "not wanted", "on a GPU"],
)
def test_nothing_else_brings_bf16(config: BuildConfig):
    assert with_bf16(config, BF16) == config


def test_bf16_that_is_asked_for_where_the_cpu_lacks_it_is_told():
    config = BuildConfig(precisions=frozenset({"fp32", "int8", "bf16"}))
    rows = {row.spec.name: row.reason for row in lacking_specs(config, PLAIN)}
    assert rows == dict.fromkeys(
        ("openvino bf16", "openvino int8+bf16"), "this CPU has no instructions for bf16"
    )
    assert lacking_specs(config, BF16) == ()
    assert lacking_specs(replace(config, device=DeviceConfig(device="cuda")), PLAIN) == ()


@pytest.mark.parametrize(
    ("precisions", "names"),
    [
        ({"fp32"}, ["cuda fp32"]),
        ({"int8"}, ["cuda fp32", "cuda fp16", "cuda int8+fp16"]),
        ({"bf16"}, ["cuda fp32", "cuda bf16"]),
        ({"bf16", "int8"}, ["cuda fp32", "cuda bf16", "cuda int8+bf16"]),
        (
            {"bf16", "fp16", "int8"},
            ["cuda fp32", "cuda fp16", "cuda int8+fp16", "cuda bf16", "cuda int8+bf16"],
        ),
    ],
)
def test_int8_on_a_gpu_comes_with_each_float_that_is_asked_for(precisions, names):
    config = BuildConfig(precisions=frozenset(precisions), device=DeviceConfig(device="cuda"))
    assert [spec.name for spec in list_specs(config, {})] == names


def test_weights_keep_to_7_bits_only_where_sums_of_products_saturate():
    assert int8_target("onnxruntime", PLAIN).weight_qmax == 63
    assert int8_target("onnxruntime", BF16) == ORT
    assert int8_target("onnxruntime", {"isa": ["neon_dot"]}) == ORT
    assert int8_target("openvino", PLAIN) == OPENVINO


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_a_spec_is_opened_and_runs(library: str):
    model, inputs = resnet(), {"x": samples(2, 3, 16, 16)}
    for precision in ("fp32", "int8"):
        target = ORT if library == "onnxruntime" else OPENVINO
        fitted = Fitted(quantized(model, target, inputs), "auto", {}) if precision == "int8" else None
        found = Opener(model, BuildConfig(), inputs).open(Spec(library, precision), fitted)
        assert isinstance(found, Candidate)
        assert found.executor.run(inputs)["y"].shape == (2, 5)
        found.executor.close()


def test_candidates_that_differ_by_their_floats_are_lowered_once(monkeypatch: pytest.MonkeyPatch):
    lowered = []
    monkeypatch.setattr(
        candidates,
        "LOWERINGS",
        {name: lambda graph: lowered.append(graph) or graph for name in ("onnxruntime", "openvino")},
    )
    monkeypatch.setattr(
        candidates, "open_executor", lambda model, options, *, output_names: SimpleNamespace(run=lambda x: {})
    )
    monkeypatch.setattr(candidates.OwnThreads, "of", lambda self, candidate, inputs, names: candidate)
    model = resnet()
    opener = Opener(model, BuildConfig(), {})
    coded, other = (
        Fitted(quantized(model, OPENVINO, {"x": samples(2, 3, 16, 16)}), "auto", {}) for _ in range(2)
    )

    def opened(spec: Spec, fitted: Fitted | None = None):
        found = opener.open(spec, fitted)
        assert isinstance(found, Candidate)
        return found.model

    floats = opened(Spec("openvino", "fp32"))
    assert opened(Spec("openvino", "bf16", "bf16")) is floats
    codes = opened(Spec("openvino", "int8"), coded)
    assert opened(Spec("openvino", "int8", "bf16"), coded) is codes
    assert len(lowered) == 2
    assert opened(Spec("openvino", "int8"), other) is not codes
    assert opened(Spec("onnxruntime", "fp32")) is model.graph
    mixed = opened(Spec("openvino", "int8", is_mixed=True), coded)
    assert mixed is not codes and opened(Spec("openvino", "int8"), other) is not mixed


def test_a_library_that_refuses_the_model_is_a_rejection_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    def refuse(graph):
        raise DeviceError("no kernel for Frobnicate")

    monkeypatch.setattr(candidates, "LOWERINGS", {"openvino": refuse})
    found = Opener(resnet(), BuildConfig(), {}).open(Spec("openvino", "fp32"), None)
    assert found == Rejected(Spec("openvino", "fp32"), "no kernel for Frobnicate")


@pytest.mark.parametrize(
    ("floats", "narrow", "is_open"),
    [
        ([1.0, 2.0], [1.0, 2.5], True),
        ([1.0, 2.0], [1.0, np.inf], False),
        ([1.0, 2.0], [np.nan, 2.0], False),
        ([1.0, -np.inf], [1.0, -np.inf], True),  # a mask of the model's own
    ],
    ids=["numbers", "infinite", "nan", "float too"],
)
def test_engines_that_overflow_where_fp32_does_not_are_rejected(
    monkeypatch: pytest.MonkeyPatch, floats: list[float], narrow: list[float], is_open: bool
):
    made = iter([floats, narrow])
    closed = []

    def opened(model, options, *, output_names):
        values = np.array(next(made), np.float32)
        return SimpleNamespace(run=lambda inputs: {"y": values}, close=lambda: closed.append(values))

    monkeypatch.setattr(candidates, "LOWERINGS", {"openvino": lambda graph: graph})
    monkeypatch.setattr(candidates, "open_executor", opened)
    monkeypatch.setattr(candidates.OwnThreads, "of", lambda self, candidate, inputs, names: candidate)
    opener = Opener(resnet(), BuildConfig(), {})
    assert isinstance(opener.open(Spec("openvino", "fp32"), None), Candidate)
    found = opener.open(Spec("openvino", "bf16", "bf16"), None)
    if is_open:
        assert isinstance(found, Candidate)
    else:
        assert isinstance(found, Rejected)
        assert found.reason == "output 'y' is not finite where FP32's is"
    assert len(closed) == (not is_open)
