# SPDX-License-Identifier: Apache-2.0
"""Attention on an NVIDIA GPU, by our kernel and by libraries: `python -m benchmarks.cuda_attention OUT.json`.

q, k and v are views of a merged projection, as in an engine; results are stored as float16 or as int8 codes.
Every legal tactic is timed in a CUDA graph of 10 calls, the median of 7 replays. Needs a GPU and the `cuda`
extra.
"""

__all__ = ["Row"]

import argparse
import importlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quantrt.gpu import GpuFacts
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.program import Step
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Attention
from quantrt.runtime.cuda.launcher import open_launchers
from quantrt.runtime.cuda.local_gpu import describe_gpu
from quantrt.runtime.cuda.runner import Assets
from quantrt.tactics.cuda.attention import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, Workload

CALLS = 10
REPLAYS = 7
SLOW = ("efficient", "math")
"""Backends that are never near the fastest."""

CODES = Expression(
    (Operand("accumulator"), Operand("scalar", value=0.01)),
    (Instruction("quantize", (0, 1)),),
    (2,),
    (False,),
)


@dataclass(frozen=True)
class Row:
    """Self-attention of B samples, H heads of D, S queries and keys; a mask has a number for every pair."""

    name: str
    B: int
    H: int
    S: int
    D: int
    has_mask: bool = False

    @property
    def flops(self) -> int:
        """Of both products."""
        return 4 * self.B * self.H * self.S * self.S * self.D


ROWS = (
    Row("BERT-large b32 s384, mask", 32, 16, 384, 64, True),
    Row("BERT-large b32 s384", 32, 16, 384, 64),
    Row("ViT-B/16 b32", 32, 12, 197, 64),
    Row("BERT-large b1 s128, mask", 1, 16, 128, 64, True),
    Row("MiniLM b32 s128, mask", 32, 12, 128, 32, True),
    Row("SDXL b2 s4096", 2, 10, 4096, 64),
    Row("b1 s8192, heads of 128", 1, 16, 8192, 128),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention kernels.")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    gpu = describe_gpu()
    results: dict[str, Any] = {"gpu": gpu.name, "rows": {}}
    for row in ROWS:
        results["rows"][row.name] = {"flops": row.flops, "us": _measure(row, gpu)}
        args.out.write_text(json.dumps(results, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(attention_page(results))


def attention_page(results: dict[str, Any]) -> str:
    """The fastest of ours and of the libraries', row by row."""
    lines = [
        f"# Attention kernels\n\n{results['gpu']}. Microseconds; `python -m benchmarks.cuda_attention`.\n"
    ]
    lines += [
        "| attention | stored as | ours | tile | library | which | ours is |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in results["rows"].items():
        for dtype, times in row["us"].items():
            ours = min((us, tactic) for tactic, us in times.items() if tactic.startswith("attention "))
            other = min((us, tactic) for tactic, us in times.items() if not tactic.startswith("attention "))
            tile = ours[1].removeprefix("attention ")
            lines.append(
                f"| {name} | {dtype} | {ours[0]:.1f} | {tile} | {other[0]:.1f} | {other[1]} "
                f"| {other[0] / ours[0]:.2f}x |"
            )
    return "\n".join(lines) + "\n"


def _measure(row: Row, gpu: GpuFacts) -> dict[str, dict[str, float]]:
    """Microseconds of every tactic, by the type of what is stored."""
    torch.manual_seed(0)
    merged = torch.randn(row.B, row.S, 3, row.H, row.D, device="cuda", dtype=torch.float16)
    inputs = [merged[:, :, part].transpose(1, 2) for part in range(3)]
    if row.has_mask:
        inputs.append(torch.zeros(row.B, 1, row.S, row.S, device="cuda", dtype=torch.float16))
    plain = Attention((("n", 0), ("n", 1), ("n", 2)), 1 / math.sqrt(row.D), False, row.has_mask)
    times: dict[str, dict[str, float]] = {}
    for dtype, epilogue in (("float16", plain.epilogue), ("int8", CODES)):
        formula = Attention(plain.edges, plain.scale, False, row.has_mask, epilogue=epilogue)
        facts = tuple(TensorFacts("float16", tuple(x.shape), x.stride()) for x in inputs)
        found = list_tactics(Workload("attention", formula, facts, (dtype,), None, {}), gpu)
        tactics = [x for x in found if isinstance(x, Tactic) and x.name not in SLOW]
        specs = [spec for tactic in tactics for draft in tactic.drafts for spec in draft.kernels]
        compiled = compile_all(specs, [gpu.capability])
        times[dtype] = {tactic.name: _time(_open(tactic, inputs, compiled)) for tactic in tactics}
    return times


def _open(
    tactic: Tactic,
    inputs: list[torch.Tensor],
    compiled: dict[KernelSpec, CompiledKernel | CompileFailure],
) -> Callable[[], object]:
    """A call that runs the drafts one after the other."""
    device = torch.device("cuda")
    runners = []
    for draft in tactic.drafts:
        kernels: dict[str, CompiledKernel] = {}
        for spec in draft.kernels:
            kernel = compiled[spec]
            if isinstance(kernel, CompileFailure):
                raise RuntimeError(f"{tactic.name}: {kernel.reason}")
            kernels[kernel_key(spec)] = kernel
        step = Step(
            draft.runner, "attention", draft.inputs, draft.outputs, draft.options, kernels=tuple(kernels)
        )
        module = importlib.import_module(f"quantrt.runtime.cuda.runners.{draft.runner}")
        runners.append((draft, module.open_runner(step, Assets(device, {}, open_launchers(kernels, device)))))

    def allocate(_: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device=device)

    def run() -> object:
        buffers = {f"in{number}": tensor for number, tensor in enumerate(inputs)}
        for draft, runner in runners:
            results = runner.run([buffers[name] for name in draft.inputs], allocate)
            buffers.update(zip(draft.outputs, results, strict=True))
        return buffers["out0"]

    return run


def _time(run: Callable[[], object]) -> float:
    """Microseconds of one call."""
    run()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        run()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                run()
    samples = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(1e3 * start.elapsed_time(end) / CALLS)
    return sorted(samples)[REPLAYS // 2]


if __name__ == "__main__":
    main()
