# SPDX-License-Identifier: Apache-2.0
import pytest

from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT


@pytest.mark.parametrize(
    ("lo", "hi", "symmetric", "grid"),
    [
        (-1.0, 1.0, False, OPENVINO.activation),
        (-1.0, 1.0, True, OPENVINO.symmetric),
        (0.0, 1.0, True, OPENVINO.nonnegative),
        (0.0, 0.0, True, OPENVINO.nonnegative),
        (-0.125, 1.0, True, OPENVINO.activation),
        (-0.126, 1.0, True, OPENVINO.symmetric),
        (-1.0, 0.1, True, OPENVINO.symmetric),
        (-1.0, 0.0, True, OPENVINO.symmetric),
    ],
)
def test_a_symmetric_grid_is_used_where_it_is_wanted_and_not_half_empty(lo, hi, symmetric, grid):
    assert OPENVINO.grid_for(lo, hi, symmetric=symmetric) == grid


@pytest.mark.parametrize(
    ("lo", "hi", "symmetric", "grid"),
    [
        (0.0, 1.0, False, CUDA.one_sided),
        (0.0, 0.0, False, CUDA.one_sided),
        (-2.0, 12.0, False, CUDA.one_sided),
        (-0.25, 1.0, False, CUDA.one_sided),
        (-0.26, 1.0, False, CUDA.activation),
        (-2.0, 12.0, True, CUDA.activation),
        (-12.0, 2.0, False, CUDA.activation),
    ],
)
def test_a_gpu_has_a_zero_point_where_it_saves_two_thirds_of_a_bit(lo, hi, symmetric, grid):
    assert CUDA.grid_for(lo, hi, symmetric=symmetric) == grid


@pytest.mark.parametrize("target", [ORT, TENSORRT], ids=lambda target: target.name)
@pytest.mark.parametrize("lo", [-1.0, -0.1, 0.0])
def test_other_targets_have_one_grid(target, lo):
    assert target.grid_for(lo, 1.0, symmetric=True) == target.activation


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_operator_has_one_row_and_every_grid_its_256_levels(target):
    names = [rule.op_type for rule in target.rules]
    assert len(names) == len(set(names))
    assert target.rule("Conv").weight == 1 and target.rule("Frobnicate") is None
    for grid in (target.activation, target.symmetric, target.nonnegative):
        assert grid is None or (grid.levels == 256 and grid.signed == (grid.dtype.name == "int8"))
