# SPDX-License-Identifier: Apache-2.0
"""--layerPrecisions: layers are kept out of int8, and what cannot be done is said or refused."""

import pytest

from quantrt.config import ConstraintConfig
from quantrt.errors import UsageError
from quantrt.trtexec.engine.layer_rules import LayerRules, layer_rules, output_rules
from quantrt.trtexec.flags.settings import BuildSettings

GPU = frozenset({"int8", "fp16"})


def rules(text: str, constraint: str, precisions: frozenset[str] = GPU, *, is_gpu: bool = True) -> LayerRules:
    pairs = tuple((part.rpartition(":")[0], part.rpartition(":")[2]) for part in text.split(","))
    settings = BuildSettings(onnx=None, layer_precisions=pairs, constraint=constraint)
    return layer_rules(settings, precisions, is_gpu=is_gpu)


def test_fp16_on_a_gpu_is_what_a_layer_outside_int8_has():
    assert rules("/head/*:fp16,/a[0]:fp16", "obey") == LayerRules(("/head/*", "/a[[]0]"), GPU, ())


def test_two_float_precisions_are_chosen_from_by_time():
    both = frozenset({"int8", "fp16", "bf16"})
    assert rules("/a:bf16", "obey", frozenset({"int8", "bf16"})).exclude == ("/a",)
    with pytest.raises(UsageError, match="outside int8 this engine is bf16 or fp16"):
        rules("/a:fp16", "obey", both)


def test_fp32_on_a_cpu_is_kept_and_takes_bf16_away():
    found = rules("/a:fp32", "obey", frozenset({"int8", "bf16"}), is_gpu=False)
    assert found == LayerRules(("/a",), frozenset({"int8"}), ())


@pytest.mark.parametrize(
    ("text", "is_gpu", "message"),
    [
        ("/a:fp32", True, "cannot be kept in fp32"),
        ("/a:int8", True, "cannot be forced to int8"),
        ("/a:fp16", False, "cannot be kept in fp16: outside int8 this engine is fp32"),
        ("/a:bf16", False, "cannot be kept in bf16"),
        ("/a:bf16", True, "cannot be kept in bf16: outside int8 this engine is fp16"),
    ],
)
def test_what_cannot_be_kept(text: str, is_gpu: bool, message: str):
    with pytest.raises(UsageError, match=message) as caught:
        rules(text, "obey", is_gpu=is_gpu)
    assert caught.value.hint == "--precisionConstraints=prefer"
    (note,) = rules(text, "prefer", is_gpu=is_gpu).notes
    assert message in note


def test_without_a_constraint_nothing_is_done_and_that_is_said():
    found = rules("/a:fp16", "none")
    assert found.exclude == ()
    assert "--precisionConstraints=obey" in found.notes[0]
    assert layer_rules(BuildSettings(onnx=None), GPU, is_gpu=True).notes == ()


def test_of_two_rules_for_a_layer_the_later_counts():
    assert rules("/a:int8,/a:fp16", "obey").exclude == ("/a",)


def test_a_layer_cannot_be_taken_out_of_a_pattern():
    with pytest.raises(UsageError, match="'/a/b' cannot be taken out of '/a/\\*'"):
        rules("/a/*:fp16,/a/b:int8", "prefer")
    with pytest.raises(UsageError, match="'/a\\[0\\]/b' cannot be taken out of '/a\\[0\\]/\\*'"):
        rules("/a[0]/*:fp16,/a[0]/b:int8", "prefer")
    assert rules("/a[0]/*:fp16,/a0/b:int8", "prefer").exclude == ("/a[[]0]/*",)


def test_an_unknown_type():
    with pytest.raises(UsageError, match="layers cannot be int32"):
        rules("/a:int32", "prefer")


def test_without_int8_there_is_nothing_to_keep_out_of():
    assert rules("/a:fp16", "obey", frozenset({"fp16"})).exclude == ()


@pytest.mark.parametrize("constraint", ["obey", "prefer"])
def test_types_of_outputs_are_the_builders_rules(constraint: str):
    pairs = (("/a", "fp16"), ("/b*", "fp32+int8"))
    notes: list[str] = []
    found = output_rules(BuildSettings(onnx=None, layer_output_types=pairs, constraint=constraint), notes)
    assert found == ConstraintConfig(
        layer_output_types=("/a:fp16", "/b*:fp32+int8"), prefer_layer_output_types=constraint == "prefer"
    )
    assert notes == []


def test_types_of_outputs_are_dropped_without_constraints():
    notes: list[str] = []
    found = output_rules(BuildSettings(onnx=None, layer_output_types=(("/a", "fp16"),)), notes)
    assert found == ConstraintConfig()
    assert notes == ["--layerOutputTypes: nothing is done without --precisionConstraints=obey or prefer"]
