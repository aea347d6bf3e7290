# SPDX-License-Identifier: Apache-2.0
"""Doubled images and the convolutions behind them: `python -m benchmarks.cuda_resized OUT.json [NAME ...]`.

Those of SDXL's and SD 1.5's UNets, two images, in fp16 and int8: apart, by the tactics that a build takes
for the resize and for the convolution, and as one, by every tactic for both. Each is a CUDA graph, timed in
turns with a cold L2 cache; what is timed was held against the reference. Needs a GPU and the `cuda` extra. A
second run adds its rows.
"""

__all__: list[str] = []

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.timing import commit, environment
from benchmarks.cuda.tuned import tuned
from benchmarks.cuda_cudnn import Shape, make_workload
from quantrt.gpu import GpuFacts
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.regions.expression import IDENTITY
from quantrt.regions.region import Conv, Resize, ResizedConv
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, Workload, dense_strides
from quantrt.tactics.cuda.timing.measure import Untimed, measure
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from quantrt.tactics.cuda.tuning.choices import Choices
from quantrt.tactics.cuda.tuning.tune import TuneOptions

SHAPES = {
    "sdxl 1280 @32": (1280, 32),
    "sdxl 640 @64": (640, 64),
    "sd15 1280 @16": (1280, 16),
    "sd15 640 @32": (640, 32),
}
"""Channels of x and of the result, and the size of x."""

IMAGES = 2
DOUBLED = Resize(("x", 0), True, (2.0, 2.0), False, IDENTITY)
RESIZE, CONVOLUTION, BOTH = "resize", "convolution", "both"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time convolutions of doubled images on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(SHAPES)}")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    results |= {"environment": environment(), "commit": commit()}
    gpu = describe_gpu()
    kernels: dict[KernelSpec, CompiledKernel] = {}
    for name in args.names or SHAPES:
        for dtype in ("float16", "int8"):
            results["rows"][f"{name} {dtype}"] = row = _row(_workloads(*SHAPES[name], dtype), gpu, kernels)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            print(name, dtype, json.dumps(row), flush=True)


def _row(
    workloads: dict[str, Workload], gpu: GpuFacts, kernels: dict[KernelSpec, CompiledKernel]
) -> dict[str, Any]:
    """Microseconds of both apart in one graph, and of the tactics for both.

    Args:
        kernels: what is compiled already; added to.
    """
    choices = tuned(list(workloads.values()), gpu, TuneOptions(excluded_sources=("torch",)), kernels)
    taken = {name: choice.tactic for name, choice in choices.by_region.items()}
    return {
        "tactics": {name: tactic.name for name, tactic in taken.items()},
        "alone_us": {name: choice.median_us for name, choice in choices.by_region.items()},
        **_in_turns(workloads, taken, choices),
        BOTH: dict(_tried(choices, choices.by_region[BOTH].key)),
    }


def _workloads(channels: int, size: int, dtype: str) -> dict[str, Workload]:
    """The resize, the convolution of the large image, and both."""
    shape = Shape(channels, channels, 2 * size, N=IMAGES, act="", dtype=dtype, stored="float16")
    convolution = make_workload(CONVOLUTION, shape)
    assert isinstance(convolution.formula, Conv)
    small = (IMAGES, channels, size, size)
    x = TensorFacts(dtype, small, dense_strides(small, channels_last=True))
    both = ResizedConv(DOUBLED, convolution.formula)
    return {
        RESIZE: Workload(RESIZE, DOUBLED, (x,), (dtype,)),
        CONVOLUTION: convolution,
        BOTH: replace(convolution, region=BOTH, formula=both, inputs=(x,)),
    }


def _in_turns(workloads: dict[str, Workload], taken: dict[str, Tactic], choices: Choices) -> dict[str, Any]:
    """Microseconds in turns, and by how much of its size the one result differs from the other."""
    device = torch.device("cuda")
    (x,) = random_inputs(workloads[RESIZE], device)
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(
                OpenTactic(tactic, name, choices.kernels, device, weights={}, plans=choices.plans)
            )
            for name, tactic in taken.items()
        }

        def apart() -> torch.Tensor:
            return opened[CONVOLUTION].run(opened[RESIZE].run([x]))[0]

        def together() -> torch.Tensor:
            return opened[BOTH].run([x])[0]

        want, got = apart().double(), together().double()
        error = float((got - want).square().mean().sqrt() / want.square().mean().sqrt())
        timings = measure({"apart_us": apart, "together_us": together}, device=device)
    return {
        name: timing.reason if isinstance(timing, Untimed) else timing.median_us
        for name, timing in timings.items()
    } | {"relative_error": error}


def _tried(choices: Choices, key: str) -> Iterator[tuple[str, Any]]:
    """Of every tactic its time, or why it has none."""
    for row in choices.candidates[key]:
        yield row.name, row.reason if row.timing is None else row.timing.median_us


if __name__ == "__main__":
    main()
