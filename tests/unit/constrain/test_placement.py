# SPDX-License-Identifier: Apache-2.0
"""Which layers may be 8-bit at all: refused where it means nothing, and held against the engine."""

from dataclasses import replace

import pytest

from quantrt.config import BuildConfig, QuantizeConfig
from quantrt.constrain.placement import check_placed, check_placement
from quantrt.errors import InternalError, UsageError
from quantrt.model.load import make_model
from quantrt.plan.plan import Layer
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import quantized, resnet, samples

IMAGES = {"x": samples(8, 3, 16, 16)}
INT8 = BuildConfig(precisions=frozenset({"fp32", "int8"}))
RULES = {
    "--exclude": QuantizeConfig(exclude=("Conv_2",)),
    "--exclude-type": QuantizeConfig(exclude_types=("Gemm",)),
    "--only": QuantizeConfig(only=("Conv_[28]",)),
}


def layers_of(shipped: QuantizedModel) -> list[Layer]:
    return [
        Layer(name=row.node, op_type=row.op_type, precision="int8" if row.is_int8 else "fp32", reason="")
        for row in shipped.placement.decisions
    ]


@pytest.mark.parametrize("flag", RULES)
def test_an_engine_that_does_not_keep_a_rule_is_an_error(flag: str):
    everything = quantized(resnet(), OPENVINO, IMAGES)
    with pytest.raises(InternalError, match="is int8 in the engine, and has to stay float"):
        check_placed(RULES[flag], everything, layers_of(everything))
    check_placed(QuantizeConfig(), everything, layers_of(everything))


@pytest.mark.parametrize("flag", RULES)
@pytest.mark.parametrize("target", [OPENVINO, CUDA], ids=lambda target: target.name)
def test_an_engine_that_keeps_it_is_none(flag: str, target):
    options = RULES[flag]
    names = {"exclude": options.exclude, "exclude_types": options.exclude_types, "only": options.only}
    kept = quantized(resnet(), target, IMAGES, **{name: value for name, value in names.items() if value})
    assert kept.has_int8
    check_placed(options, kept, layers_of(kept))


@pytest.mark.parametrize("flag", RULES)
def test_a_model_that_is_quantized_already_has_its_own(flag: str):
    model = make_model(write(quantized(resnet(), CUDA, IMAGES)))
    with pytest.raises(
        UsageError, match=f"{flag} cannot choose the 8-bit layers of a model that is quantized"
    ):
        check_placement(model, replace(INT8, quantize=RULES[flag]))
    check_placement(model, INT8)
