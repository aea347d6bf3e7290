# SPDX-License-Identifier: Apache-2.0
"""cuDNN's convolution graphs beside our kernels: `python -m benchmarks.cuda_cudnn OUT.json [NAME ...]`.

Convolutions of ResNet-50, YOLO and SDXL's UNet with their epilogues: every tactic that a build of level 4
would try, which is the first level that makes plans of cuDNN for all of them, held against the reference and
timed as builds do it, as a CUDA graph with a cold L2 cache. Needs a GPU and the `cuda` extra. A second run
adds its rows.
"""

__all__ = ["SHAPES", "Shape", "make_workload"]

import argparse
import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cuda.timing import commit
from benchmarks.cuda.tuned import tuned
from benchmarks.pages.cuda.cudnn import cuda_cudnn_page
from quantrt.gpu import GpuFacts
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Conv
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.tactic import TensorFacts, Workload, dense_strides
from quantrt.tactics.cuda.timing.environment import timing_environment
from quantrt.tactics.cuda.tuning.estimate import work_of
from quantrt.tactics.cuda.tuning.tune import TuneOptions

LEVEL = 4
SHOWN = ("driver", "cuda", "torch", "triton", "cudnn")
FRONTEND = "nvidia-cudnn-frontend"


@dataclass(frozen=True)
class Shape:
    """A square convolution, padded to its size, with a bias and an activation.

    Attributes:
        C, K: channels in and out.
        N, S: batch; height and width of the input.
        R: height and width of the kernel.
        act: "relu", "silu" or "".
        dtype, stored: of the input and the output.
        has_residual: whether a tensor like the output is added before the activation.
        groups: of channels.
    """

    C: int
    K: int
    S: int
    N: int = 32
    R: int = 3
    stride: int = 1
    act: str = "relu"
    dtype: str = "int8"
    stored: str = "int8"
    has_residual: bool = False
    groups: int = 1


SHAPES = {
    "r50 3x3 64 56": Shape(64, 64, 56),
    "r50 3x3 128 28": Shape(128, 128, 28),
    "r50 3x3 256 14": Shape(256, 256, 14),
    "r50 3x3 512 7": Shape(512, 512, 7),
    "r50 3x3 s2 128 56": Shape(128, 128, 56, stride=2),
    "r50 1x1 64-256 56 res": Shape(64, 256, 56, R=1, has_residual=True),
    "r50 1x1 256-64 56": Shape(256, 64, 56, R=1),
    "r50 1x1 256-1024 14 res": Shape(256, 1024, 14, R=1, has_residual=True),
    "r50 1x1 1024-256 14": Shape(1024, 256, 14, R=1),
    "sdxl 3x3 640 64 silu": Shape(640, 640, 64, N=2, act="silu"),
    "sdxl 3x3 320 128 f16out": Shape(320, 320, 128, N=2, act="", stored="float16"),
    "yolo 3x3 64 80 silu": Shape(64, 64, 80, N=8, act="silu"),
    "f16 sdxl 640 silu": Shape(640, 640, 64, N=2, act="silu", dtype="float16", stored="float16"),
    "b256 3x3 256 14": Shape(256, 256, 14, N=256),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time cuDNN's convolution graphs on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    gpu = describe_gpu()
    facts = timing_environment(gpu)
    packages = {name: facts[name] for name in SHOWN} | {FRONTEND: version(FRONTEND)}
    results["environment"] = {"gpu": gpu.name, "packages": packages}
    for name, shape in SHAPES.items():
        if not args.names or name in args.names:
            results["rows"][name] = _measure(make_workload(name, shape), gpu)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_cudnn_page(results))
            print(json.dumps({name: results["rows"][name]}), flush=True)


def _measure(workload: Workload, gpu: GpuFacts) -> dict[str, Any]:
    """Microseconds of every tactic that is right, and of the others why they were not timed."""
    choices = tuned([workload], gpu, TuneOptions(level=LEVEL))
    tried = choices.candidates[choices.by_region[workload.region].key]
    return {
        "us": {f"{row.source}: {row.name}": row.timing.median_us for row in tried if row.timing is not None},
        "untimed": {f"{row.source}: {row.name}": row.reason for row in tried if row.timing is None},
        "operations": 2 * work_of(workload).products,
        "commit": commit(),
    }


def make_workload(name: str, shape: Shape) -> Workload:
    """Codes, or float16, of seeded random weights, channels last."""
    rng = np.random.default_rng(0)
    depth = shape.C // shape.groups
    terms = depth * shape.R * shape.R
    size = (shape.S - 1) // shape.stride + 1
    dense = (shape.N, shape.K, size, size)
    x = (shape.N, shape.C, shape.S, shape.S)
    inputs = [TensorFacts(shape.dtype, x, dense_strides(x, channels_last=True))]
    if shape.has_residual:
        inputs.append(TensorFacts(shape.stored, dense, dense_strides(dense, channels_last=True)))
    weights = (shape.K, depth, shape.R, shape.R)
    constants = {"bias": rng.uniform(-0.5, 0.5, shape.K)}
    if shape.dtype == "int8":
        weight = rng.integers(-127, 128, weights, dtype=np.int8)
        constants = {"scale": rng.uniform(0.7, 1.3, shape.K) / (73.0 * 73.0 * math.sqrt(terms)), **constants}
    else:
        weight = (rng.standard_normal(weights) / math.sqrt(terms)).astype(np.float32)
    constants = {name: values.astype(np.float32) for name, values in constants.items()}
    strides, pads = (shape.stride,) * 2, (shape.R // 2,) * 4
    formula = Conv(("x", 0), ("w", 0), "w", strides, (1, 1), pads, shape.groups, _epilogue(shape))
    return Workload(name, formula, tuple(inputs), (shape.stored,), weight, constants)


def _epilogue(shape: Shape) -> Expression:
    """Scale, bias, residual, activation and quantization, each where the shape has it."""
    is_int8, stores_codes = shape.dtype == "int8", shape.stored == "int8"
    operands = [Operand("accumulator")]
    operands += [Operand("constant", "scale")] if is_int8 else []
    operands += [Operand("constant", "bias")]
    residual = len(operands)
    operands += [Operand("tensor", "r", ("r", 0)), Operand("scalar", value=0.0137)] * shape.has_residual
    operands += [Operand("scalar", value=0.0213)] if stores_codes else []
    steps: list[Instruction] = []

    def then(op: str, *args: int) -> int:
        steps.append(Instruction(op, args))
        return len(operands) + len(steps) - 1

    y = then("mul", 0, 1) if is_int8 else 0
    y = then("add", y, residual - 1)
    if shape.has_residual:
        y = then("add", y, then("mul", residual, residual + 1))
    if shape.act == "relu":
        y = then("max", y, then("const"))
    if shape.act == "silu":
        y = then("mul", y, then("sigmoid", y))
    y = then("quantize", y, len(operands) - 1) if stores_codes else y
    return Expression(tuple(operands), tuple(steps), (y,), (False,))


if __name__ == "__main__":
    main()
