# SPDX-License-Identifier: Apache-2.0
"""Attention in fp16 on an NVIDIA GPU, ours and libraries': `python -m benchmarks.cuda_attention OUT.json`.

q, k and v are views of merged projections, as in an engine; results are stored as float16 or as int8 codes.
Every legal tactic without codes of q, k and v is timed in a CUDA graph of 8 calls, the median of 7 replays,
on sets of inputs in turn that do not fit the L2 cache together. A page is written beside the results. Needs a
GPU and the `cuda` extra.
"""

__all__ = ["main"]

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.timing import commit, environment, graph_us
from benchmarks.pages.page import number, table
from quantrt.gpu import GpuFacts
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.attention.attention import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, Workload
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic

CALLS = 8
COLD_BYTES = 150e6
"""Of all sets of inputs together: three times an H200's L2 cache."""

SLOW = ("efficient", "math")
"""Backends that are never near the fastest."""

CODES = Expression(
    (Operand("accumulator"), Operand("scalar", value=0.01)),
    (Instruction("quantize", (0, 1)),),
    (2,),
    (False,),
)


INTRO = """# Attention kernels

{machine}; commit {commit}. `python -m benchmarks.cuda_attention docs/results/cuda-attention-h200.json`

Microseconds of one call, inputs not in L2; a library's time with int8 holds the kernel that makes the codes.
Padding hides up to half of the keys of a sample; the rate counts all of them.

"""


@dataclass(frozen=True)
class Row:
    """B samples, H heads of D, S queries, T keys.

    Attributes:
        mask: "": none; "row": padding, the same for all queries; "pairs": a number for every query and key.
    """

    name: str
    B: int
    H: int
    S: int
    T: int
    D: int
    mask: str = ""

    @property
    def flops(self) -> int:
        """Of both products."""
        return 4 * self.B * self.H * self.S * self.T * self.D


ROWS = (
    Row("BERT-large b32 s384, padding", 32, 16, 384, 384, 64, "row"),
    Row("BERT-large b32 s384, mask of pairs", 32, 16, 384, 384, 64, "pairs"),
    Row("BERT-large b32 s384", 32, 16, 384, 384, 64),
    Row("BERT-large b1 s384, padding", 1, 16, 384, 384, 64, "row"),
    Row("BERT-large b1 s128, padding", 1, 16, 128, 128, 64, "row"),
    Row("MiniLM b32 s128, padding", 32, 12, 128, 128, 32, "row"),
    Row("ViT-B/16 b32", 32, 12, 197, 197, 64),
    Row("SDXL b2 s1024", 2, 20, 1024, 1024, 64),
    Row("SDXL b2 s4096", 2, 10, 4096, 4096, 64),
    Row("SDXL b2 s1024, 77 keys", 2, 20, 1024, 77, 64),
    Row("SDXL b2 s4096, 77 keys", 2, 10, 4096, 77, 64),
    Row("b1 s8192, heads of 128", 1, 16, 8192, 8192, 128),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention kernels.")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    gpu = describe_gpu()
    results: dict[str, Any] = {"environment": environment(), "commit": commit(), "rows": {}}
    cases = {row: _cases(row, gpu) for row in ROWS}
    tactics = [tactic for case in cases.values() for found in case.values() for tactic in found]
    compiled = compile_all([spec for tactic in tactics for spec in _specs(tactic)], [gpu.capability])
    for row, case in cases.items():
        sets = _inputs(row)
        us = {
            dtype: {
                tactic.name: _measure(tactic, sets, compiled)
                for tactic in found
                if _fits(tactic, compiled, gpu)
            }
            for dtype, found in case.items()
        }
        results["rows"][row.name] = {"flops": row.flops, "us": us}
        args.out.write_text(json.dumps(results, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(attention_page(results))
    print(attention_page(results))


def attention_page(results: dict[str, Any]) -> str:
    """The fastest of ours and of the libraries', row by row."""
    packages = results["environment"]["packages"]
    lines = []
    for name, row in results["rows"].items():
        for dtype, times in row["us"].items():
            ours = min((us, tactic) for tactic, us in times.items() if tactic.startswith("attention "))
            other = min((us, tactic) for tactic, us in times.items() if not tactic.startswith("attention "))
            tile, rate = ours[1].removeprefix("attention "), row["flops"] / ours[0] / 1e6
            ratio = f"{other[0] / ours[0]:.2f}x"
            lines.append(
                (name, dtype, number(ours[0], 1), number(rate, 0), tile, number(other[0], 1), other[1], ratio)
            )
    head = ("attention", "stored as", "ours", "TFLOP/s", "tile", "library", "which", "ours is")
    machine = f"{results['environment']['gpu']}; torch {packages['torch']}, triton {packages['triton']}"
    missing = [row.name for row in ROWS if row.name not in results["rows"]]
    told = f"\nNot measured in this run: {'; '.join(missing)}.\n" if missing else ""
    return INTRO.format(machine=machine, commit=results["commit"]) + table(head, lines) + told


def _cases(row: Row, gpu: GpuFacts) -> dict[str, list[Tactic]]:
    """Tactics by the type of what is stored."""
    shapes, strides = _shapes(row)
    facts = tuple(TensorFacts("float16", *both) for both in zip(shapes, strides, strict=True))
    plain = Attention((("n", 0), ("n", 1), ("n", 2)), 1 / math.sqrt(row.D), False, bool(row.mask))
    found = {}
    for dtype, epilogue in (("float16", plain.epilogue), ("int8", CODES)):
        workload = Workload("attention", replace(plain, epilogue=epilogue), facts, (dtype,), None, {})
        listed = list_tactics(workload, gpu, allows_codes=False)
        found[dtype] = [x for x in listed if isinstance(x, Tactic) and x.name not in SLOW]
    return found


def _shapes(row: Row) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Shapes and strides of q, k, v and the mask."""
    B, H, S, T, D = row.B, row.H, row.S, row.T, row.D
    q, kv = (3 if S == T else 1) * H * D, (3 if S == T else 2) * H * D
    shapes: list[tuple[int, ...]] = [(B, H, S, D), (B, H, T, D), (B, H, T, D)]
    strides: list[tuple[int, ...]] = [(S * q, D, q, 1), (T * kv, D, kv, 1), (T * kv, D, kv, 1)]
    if row.mask:
        rows = S if row.mask == "pairs" else 1
        shapes.append((B, 1, rows, T))
        strides.append((rows * T, rows * T, T, 1))
    return shapes, strides


def _inputs(row: Row) -> list[list[torch.Tensor]]:
    """Sets of q, k, v and a mask, as many as do not fit the L2 cache."""
    B, H, S, T, D = row.B, row.H, row.S, row.T, row.D
    set_bytes = 2 * B * H * D * (S + 2 * T)
    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(size, device="cuda", dtype=torch.float16, generator=generator)

    sets = []
    for _ in range(max(2, min(CALLS, math.ceil(COLD_BYTES / set_bytes)))):
        if S == T:
            parts = drawn(B, S, 3, H, D).unbind(2)
        else:
            parts = (drawn(B, S, H, D), *drawn(B, T, 2, H, D).unbind(2))
        inputs = [part.transpose(1, 2) for part in parts]
        if row.mask:
            lengths = torch.randint(T // 2, T + 1, (B, 1, 1, 1), device="cuda", generator=generator)
            hidden = torch.arange(T, device="cuda") >= lengths
            mask = torch.zeros(B, 1, 1, T, device="cuda", dtype=torch.float16).masked_fill(hidden, -math.inf)
            inputs.append(mask.expand(B, 1, S if row.mask == "pairs" else 1, T).contiguous())
        sets.append(inputs)
    return sets


def _specs(tactic: Tactic) -> list[KernelSpec]:
    return [spec for draft in tactic.drafts for spec in draft.kernels]


def _fits(tactic: Tactic, compiled: dict[KernelSpec, CompiledKernel | CompileFailure], gpu: GpuFacts) -> bool:
    """Whether its kernels need no more shared memory than there is: builds leave out others too."""
    kernels = [compiled[spec] for spec in _specs(tactic)]
    return all(
        isinstance(one, CompileFailure) or one.shared_bytes[gpu.capability] <= gpu.shared_memory_bytes
        for one in kernels
    )


def _measure(
    tactic: Tactic,
    sets: list[list[torch.Tensor]],
    compiled: dict[KernelSpec, CompiledKernel | CompileFailure],
) -> float:
    """Microseconds of one call."""
    kernels: dict[KernelSpec, CompiledKernel] = {}
    for spec in _specs(tactic):
        kernel = compiled[spec]
        if isinstance(kernel, CompileFailure):
            raise RuntimeError(f"{tactic.name}: {kernel.reason}")
        kernels[spec] = kernel
    with OpenTactic(tactic, "attention", kernels, torch.device("cuda"), weights={}) as opened:
        return graph_us(lambda call: opened.run(sets[call % len(sets)]), CALLS)


if __name__ == "__main__":
    main()
