# SPDX-License-Identifier: Apache-2.0
"""Our pools compiled for GPUs that are not here: whole vectors are loaded, nothing spills."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.pool.spec import PoolProblem, kernel_of
from quantrt.kernels.pool.tiles import configs, cost, estimate_us
from quantrt.regions.expression import IDENTITY, Expression, Operand
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions
from tests.kernels.memory_bound.expressions import Builder, scalar

H200 = gpu_named("H200")


def to_codes() -> Expression:
    b = Builder(Operand("accumulator"), scalar(0.1))
    return b.build(b("quantize", 0, 1))


def first_of_resnet(dtype: str) -> PoolProblem:
    """3x3 maxima of ResNet-50 at batch 32."""
    window = ConvProblem(
        32, 112, 112, 64, 64, 3, 3, (2, 2), (1, 1, 1, 1), (1, 1), dtype, IDENTITY, (), (dtype,)
    )
    return PoolProblem(window, "max")


def last_of_resnet(dtype: str) -> PoolProblem:
    """Its means over 7x7 images, as codes."""
    window = ConvProblem(
        32, 1, 49, 2048, 2048, 1, 49, (1, 1), (0,) * 4, (1, 1), dtype, to_codes(), (), ("int8",)
    )
    return PoolProblem(window, "average", is_global=True)


PROBLEMS = {
    "maxima of codes": first_of_resnet("int8"),
    "maxima of floats": first_of_resnet("float16"),
    "means of codes": last_of_resnet("int8"),
    "means of floats": last_of_resnet("float16"),
}


EVERYWHERE = ("maxima of codes", "means of floats")
"""Both functions; the other kernels are compiled for one capability alone."""


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    specs = {name: kernel_of(problem, configs(problem, H200)[0]) for name, problem in PROBLEMS.items()}
    others = [name for name in specs if name not in EVERYWHERE]
    found = zip(EVERYWHERE, compiled_all([specs[name] for name in EVERYWHERE], CAPABILITIES), strict=True)
    return dict(found) | dict(zip(others, compiled_all([specs[x] for x in others], (90,)), strict=True))


@pytest.mark.parametrize(
    ("name", "capability"),
    [(name, x) for name in PROBLEMS for x in (CAPABILITIES if name in EVERYWHERE else (90,))],
)
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], name: str, capability: int, tmp_path: Path
):
    kernel = compiled[name]
    loads = {x for x in instructions(kernel.cubins[capability], tmp_path) if x.startswith("LDG")}
    assert loads and all(x.startswith("LDG.E.128") for x in loads), loads
    assert kernel.spills == 0 and kernel.registers > 0


@pytest.mark.parametrize(
    ("name", "size_bytes", "least_us", "most_us"),
    [
        ("maxima of codes", 32 * 64 * (112**2 + 56**2), 7.6, 14.0),
        ("maxima of floats", 2 * 32 * 64 * (112**2 + 56**2), 15.2, 22.0),
        ("means of codes", 32 * 2048 * (49 + 1), 0.7, 6.0),
        ("means of floats", 32 * 2048 * (2 * 49 + 1), 1.5, 7.0),
    ],
)
def test_the_predicted_time_is_that_of_its_bytes_and_a_launch(
    name: str, size_bytes: int, least_us: float, most_us: float
):
    problem = PROBLEMS[name]
    found = cost(problem, H200)
    assert found.size_bytes == size_bytes
    assert found.time_us >= least_us
    times = [estimate_us(problem, tile, H200) for tile in configs(problem, H200)]
    assert times == sorted(times)
    assert found.time_us < times[0] < most_us
