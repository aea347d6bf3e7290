# SPDX-License-Identifier: Apache-2.0
"""Single kernels on an NVIDIA GPU: `python -m benchmarks.cuda_kernels OUT.json [NAME ...]`.

Products of BERT-large in int8 and FP8, those of few rows with weights in 4 bits, products with epilogues of
engines, the norms over rows of BERT-large and ViT-B/16, and those over groups of SDXL's UNet: every tactic
that a build of level 3 would try, held against the reference and timed as builds do it, as a CUDA graph with
a cold L2 cache. The floor is the longer of two times: operations over the peak of the data sheet, and bytes
over the bandwidth of a copy. Needs a GPU and the `cuda` extra. A second run adds its rows.
"""

__all__ = ["main", "product"]

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.cuda.timing import commit, environment
from benchmarks.cuda.tuned import tuned
from benchmarks.pages.cuda.kernels import cuda_kernels_page
from quantrt.gpu import GpuFacts
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Gemm, GroupNorm, Rows
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.tactic import TensorFacts, Workload, dense_strides
from quantrt.tactics.cuda.tuning.estimate import work_of
from quantrt.tactics.cuda.tuning.tune import TuneOptions

PRODUCTS = ((12288, 3072, 1024), (12288, 1024, 1024), (12288, 4096, 1024), (12288, 1024, 4096))
"""M, N, K of BERT-large at batch 32 and 384 tokens: q, k and v; the projection; the feed-forward's two."""

GELUS = ((12288, 4096, 1024), (6304, 3072, 768))
RESIDUALS = (
    *((12288, 1024, 1024), (12288, 1024, 4096), (6304, 768, 768), (6304, 768, 3072)),
    *((2048, 1280, 1280), (2048, 1280, 5120)),
)
"""Of BERT-large, ViT-B/16 at batch 32 and SDXL's UNet, with GELU to codes and with a residual of halves."""

ROW_NORMS = ((12288, 1024, ("float16",)), (12288, 1024, ("float16", "int8")), (6304, 768, ("int8",)))
"""Rows, columns, and what is stored: BERT-large's result feeds a residual too, that of ViT-B/16 does not."""

NORMS = ((2, 320, 128, 128), (2, 640, 64, 64), (2, 1280, 32, 32), (2, 960, 128, 128))
GROUPS = 32

GROUPED = tuple((M, N, K) for M in (1, 16, 128) for N in (1024, 4096) for K in (1024, 4096))
"""M, N, K, with weights in 4 bits; at 128 rows also those of BERT-large for one text of as many tokens."""

GROUP_SIZE = 64

CODES = {"int8": "quantize", "float8_e4m3fn": "quantize_fp8"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time single kernels on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    results["environment"] = environment()
    gpu = describe_gpu()
    for workload in _workloads():
        if not args.names or workload.region in args.names:
            results["rows"][workload.region] = _measure(workload, gpu)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_kernels_page(results))
            print(json.dumps({workload.region: results["rows"][workload.region]}), flush=True)


def _workloads() -> Iterator[Workload]:
    for sizes in PRODUCTS:
        for codes in CODES:
            yield product(*sizes, codes)
    for sizes in GROUPED:
        yield _grouped(*sizes)
    for sizes in GELUS:
        yield _finished(*sizes, "gelu")
    for sizes in RESIDUALS:
        yield _finished(*sizes, "residual")
    for rows, columns, stored_types in ROW_NORMS:
        yield _row_norm(rows, columns, stored_types)
    for shape in NORMS:
        for stored in ("float16", "int8"):
            yield _group_norm(shape, stored)


def _measure(workload: Workload, gpu: GpuFacts) -> dict[str, Any]:
    """Microseconds by tactic, the likeliest first as they were tried."""
    choices = tuned([workload], gpu, TuneOptions(level=3))
    choice = choices.by_region[workload.region]
    timed = {f"{row.source}: {row.name}": row.timing for row in choices.candidates[choice.key]}
    work = work_of(workload)
    peaks = {"int8": gpu.int8_tops, "float8_e4m3fn": gpu.fp8_tflops}
    peak = peaks.get(workload.inputs[0].dtype) or gpu.fp16_tflops
    floor_us = max(
        2 * work.products / (1e6 * peak) if peak else 0.0,
        work.moved_bytes / gpu.memory_bytes_per_us,
    )
    return {
        "us": {name: timing.median_us for name, timing in timed.items() if timing is not None},
        "floor_us": floor_us,
        "operations": 2 * work.products,
        "bytes": work.moved_bytes,
        "commit": commit(),
    }


def product(M: int, N: int, K: int, dtype: str) -> Workload:
    """Codes to codes: a scale and a bias per channel, then quantization."""
    rng = np.random.default_rng(0)
    operands = (Operand("accumulator"), Operand("constant", "scale"), Operand("constant", "bias"))
    steps = (
        Instruction("mul", (0, 1)),
        Instruction("add", (4, 2)),
        Instruction(CODES[dtype], (5, 3)),
    )
    expression = Expression((*operands, Operand("scalar", value=0.04)), steps, (6,), (False,))
    if dtype == "int8":
        weight, size = rng.integers(-127, 128, (N, K), dtype=np.int8), 73.0
    else:
        weight, size = (100 * rng.standard_normal((N, K))).astype(ml_dtypes.float8_e4m3fn), 100.0
    constants = {
        "scale": (rng.uniform(0.5, 1.5, N) / (size * size * math.sqrt(K))).astype(np.float32),
        "bias": rng.standard_normal(N).astype(np.float32),
    }
    formula = Gemm(("n", 0), ("n", 1), "w", True, expression)
    x = TensorFacts(dtype, (M, K), (K, 1))
    return Workload(f"product-{M}x{N}x{K}-{dtype}", formula, (x,), (dtype,), weight, constants)


def _grouped(M: int, N: int, K: int) -> Workload:
    """Halves to halves with a bias, the weight in 4 bits: a scale for every 64 inputs."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 1.5, (K // GROUP_SIZE, N)).astype(np.float32) / (5 * math.sqrt(K))
    codes = rng.integers(-8, 8, (K, N)).astype(np.float32)
    operands = (Operand("accumulator"), Operand("constant", "bias"))
    expression = Expression(operands, (Instruction("add", (0, 1)),), (2,), (False,))
    formula = Gemm(("n", 0), ("n", 1), "w", False, expression)
    x = TensorFacts("float16", (M, K), (K, 1))
    weight = codes * np.repeat(scale, GROUP_SIZE, axis=0)
    constants = {"bias": rng.standard_normal(N).astype(np.float32)}
    return Workload(f"product-{M}x{N}x{K}-int4", formula, (x,), ("float16",), weight, constants)


def _finished(M: int, N: int, K: int, last: str) -> Workload:
    """The same product of int8, with what else an engine computes in its kernel: "gelu" or "residual"."""
    plain = product(M, N, K, "int8")
    assert isinstance(plain.formula, Gemm)
    operands = plain.formula.epilogue.operands[:3]
    steps = [Instruction("mul", (0, 1)), Instruction("add", (4, 2))]
    if last == "residual":
        operands = (*operands, Operand("tensor", "residual"))
        steps += [Instruction("add", (5, 3))]
    else:
        operands = (*operands, Operand("scalar", value=0.04))
        steps += [
            Instruction("const", (), math.sqrt(0.5)),
            Instruction("mul", (5, 6)),
            Instruction("erf", (7,)),
            Instruction("const", (), 1.0),
            Instruction("add", (8, 9)),
            Instruction("mul", (5, 10)),
            Instruction("const", (), 0.5),
            Instruction("mul", (11, 12)),
            Instruction("quantize", (13, 3)),
        ]
    expression = Expression(operands, tuple(steps), (3 + len(steps),), (False,))
    tensors = (TensorFacts("float16", (M, N), (N, 1)),) if last == "residual" else ()
    return replace(
        plain,
        region=f"{plain.region}-{last}",
        formula=replace(plain.formula, epilogue=expression),
        inputs=(*plain.inputs, *tensors),
        outputs=("float16",) if last == "residual" else ("int8",),
    )


def _row_norm(rows: int, columns: int, stored: tuple[str, ...]) -> Workload:
    """LayerNormalization as builds spell it, and quantization where codes are stored."""
    rng = np.random.default_rng(0)
    operands = (Operand("tensor"), Operand("constant", "gamma"), Operand("constant", "beta"))
    steps = (
        Instruction("row_mean", (0,)),
        Instruction("sub", (0, 4)),
        Instruction("mul", (5, 5)),
        Instruction("row_mean", (6,)),
        Instruction("const", (), 1e-12),
        Instruction("add", (7, 8)),
        Instruction("rsqrt", (9,)),
        Instruction("mul", (5, 10)),
        Instruction("mul", (11, 1)),
        Instruction("add", (12, 2)),
        Instruction("quantize", (13, 3)),
    )
    outputs = tuple(14 if dtype == "int8" else 13 for dtype in stored)
    expression = Expression(
        (*operands, Operand("scalar", value=0.03)), steps, outputs, (False,) * len(outputs)
    )
    constants = {name: rng.standard_normal(columns).astype(np.float32) for name in ("gamma", "beta")}
    x = TensorFacts("float16", (rows, columns), (columns, 1))
    name = f"layer_norm-{rows}x{columns}-{'-'.join(stored)}"
    return Workload(name, Rows(expression), (x,), stored, None, constants)


def _group_norm(shape: tuple[int, int, int, int], stored: str) -> Workload:
    """GroupNorm with its affine, SiLU and where codes are stored quantization; channels-last."""
    rng = np.random.default_rng(0)
    operands = [Operand("accumulator"), Operand("constant", "gamma"), Operand("constant", "beta")]
    operands += [Operand("scalar", value=0.03)] if stored == "int8" else []
    n = len(operands)
    steps = [
        Instruction("mul", (0, 1)),
        Instruction("add", (n, 2)),
        Instruction("sigmoid", (n + 1,)),
        Instruction("mul", (n + 1, n + 2)),
    ]
    steps += [Instruction("quantize", (n + 3, 3))] if stored == "int8" else []
    expression = Expression(tuple(operands), tuple(steps), (n + len(steps) - 1,), (False,))
    constants = {name: rng.standard_normal((shape[1], 1, 1)).astype(np.float32) for name in ("gamma", "beta")}
    formula = GroupNorm(("n", 0), None, GROUPS, shape[1], 1e-5, expression)
    x = TensorFacts("float16", shape, dense_strides(shape, channels_last=True))
    name = f"group_norm-{'x'.join(map(str, shape))}-{stored}"
    return Workload(name, formula, (x,), (stored,), None, constants)


if __name__ == "__main__":
    main()
