# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions against cuDNN in fp16: `python -m benchmarks.cuda_convolutions OUT.json [NETWORK ...]`.

Every convolution of ResNet-50, MobileNetV2 and SDXL's UNet once: the tactic that a build takes for it in
int8, with its whole epilogue, and cuDNN's fp16 convolution through torch, channels last and benchmarked, with
one compiled kernel for the same epilogue behind it. Both are CUDA graphs with a cold L2 cache. Needs a GPU
and the `cuda` extra. A second run adds its networks.
"""

__all__: list[str] = []

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.convolution_shapes import NETWORKS, name_of
from benchmarks.cuda.timing import commit, environment
from benchmarks.cuda.tuned import tuned
from benchmarks.cuda_cudnn import Shape, make_workload
from benchmarks.pages.cuda.convolutions import cuda_convolutions_page
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.timing.measure import Untimed, measure
from quantrt.tactics.cuda.tuning.choices import Choices
from quantrt.tactics.cuda.tuning.estimate import work_of

Epilogue = Callable[..., torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time int8 convolutions and cuDNN's in fp16 on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {', '.join(NETWORKS)}")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"networks": {}}
    results["environment"] = environment()
    torch.backends.cudnn.benchmark = True
    gpu = describe_gpu()
    kernels: dict[KernelSpec, CompiledKernel] = {}  # a network of another batch has many of the same
    for network, shapes in NETWORKS.items():
        if not args.networks or network in args.networks:
            names = {name_of(shape): shape for shape in shapes}
            workloads = [make_workload(name, shape) for name, shape in names.items()]
            choices = tuned(workloads, gpu, kernels=kernels)
            results["networks"][network] = {
                name: _row(name, shape, choices) | {"times": shapes[shape]} for name, shape in names.items()
            }
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_convolutions_page(results))
            print(json.dumps({network: results["networks"][network]}), flush=True)


def _row(name: str, shape: Shape, choices: Choices) -> dict[str, Any]:
    choice = choices.by_region[name]
    return {
        "int8_us": choice.median_us,
        "tactic": f"{choice.tactic.source}: {choice.tactic.name}",
        **_cudnn_us(shape),
        "operations": 2 * work_of(make_workload(name, shape)).products,
        "commit": commit(),
    }


def _cudnn_us(shape: Shape) -> dict[str, float]:
    """Microseconds of the convolution alone, and with the epilogue behind it."""
    device = torch.device("cuda")
    torch.manual_seed(0)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, device=device, dtype=torch.float16)

    size = (shape.S - 1) // shape.stride + 1
    x = random(shape.N, shape.C, shape.S, shape.S).contiguous(memory_format=torch.channels_last)
    weight = random(shape.K, shape.C // shape.groups, shape.R, shape.R)
    weight = weight.contiguous(memory_format=torch.channels_last)
    bias = random(shape.K, 1, 1)
    residual = random(shape.N, shape.K, size, size).contiguous(memory_format=torch.channels_last)
    finish = _epilogue(shape)
    others = (bias, residual) if shape.has_residual else (bias,)

    def convolve() -> torch.Tensor:
        return torch.nn.functional.conv2d(
            x, weight, stride=shape.stride, padding=shape.R // 2, groups=shape.groups
        )

    runs: dict[str, Callable[[], object]] = {
        "conv_us": convolve,
        "fp16_us": lambda: finish(convolve(), *others),
    }
    with torch.inference_mode():
        for run in runs.values():
            run()
        timings = measure(runs, device=device)
    failed = [timing.reason for timing in timings.values() if isinstance(timing, Untimed)]
    if failed:
        raise RuntimeError(f"cuDNN's convolution '{name_of(shape)}' was not timed: {failed[0]}")
    return {name: timing.median_us for name, timing in timings.items() if not isinstance(timing, Untimed)}


def _epilogue(shape: Shape) -> Epilogue:
    """Bias, residual and activation in one kernel, compiled once for all sizes."""
    if shape.has_residual:
        return _add_relu if shape.act else _add
    return _relu if shape.act else _bias


def _compiled(function: Epilogue) -> Epilogue:
    compiled: Epilogue = torch.compile(function, dynamic=True)
    return compiled


@_compiled
def _bias(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return y + bias


@_compiled
def _relu(y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(y + bias)


@_compiled
def _add(y: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return y + bias + residual


@_compiled
def _add_relu(y: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return torch.relu(y + bias + residual)


if __name__ == "__main__":
    main()
