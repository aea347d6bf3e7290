# SPDX-License-Identifier: Apache-2.0
"""Attention in 8 bits on an H200, every form: `python -m benchmarks.cuda_attention8 OUT.json`.

q, k and v are views of a merged projection, as in an engine. Each form of kernels/attention_hopper, where it
can compute a shape, and of kernels/attention_coded at some is checked against float64 on some of the queries,
then timed with the step that makes its codes, and that step alone; beside it in the same run attention of
torch by every backend that takes the shape, and ours in fp16. Times are medians of replays of CUDA graphs:
"hot" repeats one set of inputs, "cold" goes round several that do not fit the L2 cache together. The result
is written after every form; one that neither ends nor fails within LIMIT_S is noted and left out. Needs a GPU
of compute capability 9.0 and the `cuda` extra.
"""

__all__ = ["main"]

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.cuda.attention8_cases import FLOATS, SHAPES, Case, Shape, cases_of, mask_size
from benchmarks.cuda.timing import commit, environment, graph_us
from benchmarks.pages.cuda.attention8 import attention_page, commits_of
from quantrt.gpu import GpuFacts, gpu_named
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.tactic import Draft, Tactic
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
"""Of torch's attention. A mask, or wide heads, leave some of them."""
LIMIT_S = 40.0
"""Without news; loading torch, and kernels that were compiled before, takes a part of it."""
CALLS = 8
COLD_BYTES = 150e6
"""Of all sets of inputs together: three times an H200's L2 cache."""
QUERIES = 96
"""Of each head, that are checked."""
EXPONENTIALS_PER_CLOCK = 16
CLOCK_HZ = 1.755e9
"""Of a multiprocessor, CUDA C++ programming guide; and an H200's clock under load."""


@dataclass(frozen=True)
class Trial:
    """A shape with its inputs and what is right for some of its queries."""

    shape: Shape
    sets: list[list[torch.Tensor]]
    expected: torch.Tensor
    gpu: GpuFacts


def main() -> None:
    parser = argparse.ArgumentParser(description="Time attention in 8 bits.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="SUBSTRING", help="of forms; default: all")
    parser.add_argument("--shape", action="append", metavar="NAME", help="such as 2x10x8192x64; default: all")
    parser.add_argument("--seconds", type=float, default=300.0, help="end after this long")
    parser.add_argument("--join", type=Path, metavar="JSON", help="add what OUT lacks; measures nothing")
    parser.add_argument("--compile-only", action="store_true", help="fill Triton's cache; needs no GPU")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    shapes = _chosen(parser, args.shape)
    if args.measure:
        _measure(args.out, shapes, args.names)
        return
    if args.join:
        _write(args.out, joined(json.loads(args.out.read_text()), json.loads(args.join.read_text())))
        print(attention_page(json.loads(args.out.read_text())))
        return
    end_s = time.monotonic() + args.seconds
    _compile(cases_of(shapes, args.names, gpu_named("H200")))
    if not args.compile_only:
        _watch(args, end_s)
        if not args.out.exists():
            raise SystemExit(f"nothing was measured: {args.out} was not written")
        print(attention_page(json.loads(args.out.read_text())))


def _chosen(parser: argparse.ArgumentParser, names: Sequence[str] | None) -> Sequence[Shape]:
    """The shapes of these names; all of them by default."""
    known = {shape.name: shape for shape in SHAPES}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        parser.error(f"no shape {unknown[0]!r}: there are {', '.join(known)}")
    return SHAPES if names is None else [known[name] for name in names]


def _watch(args: argparse.Namespace, end_s: float) -> None:
    """Run the measurement in a process of its own, again without the form at which it stood still."""
    args.out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.cuda_attention8", str(args.out), *args.names, "--measure"]
    for name in args.shape or ():
        command += ["--shape", name]
    while time.monotonic() < end_s:
        process = subprocess.Popen(command)
        status, since, news = None, time.monotonic(), ""
        while status is None and time.monotonic() < end_s:
            time.sleep(0.2)
            status = process.poll()
            text = args.out.read_text() if args.out.exists() else ""
            if text != news:
                since, news = time.monotonic(), text
            if time.monotonic() - since > LIMIT_S:
                break
        process.kill()
        process.wait()
        if status == 0 or not news or not _note_failure(args.out, status):
            return


def _note_failure(out: Path, status: int | None) -> bool:
    """Write down that the form that was begun did not end; whether there was one."""
    results = json.loads(out.read_text())
    begun = results.pop("begun", None)
    if begun is None:
        return False
    shape, name = begun
    results["rows"].setdefault(shape, {})[name] = {"error": f"ended with status {status}"}
    _write(out, results)
    return True


def _measure(out: Path, shapes: Sequence[Shape], names: Sequence[str]) -> None:
    """Everything that the file does not have yet."""
    results = json.loads(out.read_text()) if out.exists() else {"rows": {}}
    results |= {"environment": environment(), "commits": [commit() or "unknown"]}
    _write(out, results)
    gpu = describe_gpu()
    cases = cases_of(shapes, names, gpu)
    compiled = _compile(cases)
    failed = {
        name
        for rows in results["rows"].values()
        for name, row in rows.items()
        if "status" in row.get("error", "")
    }
    for shape in shapes:
        rows = results["rows"].setdefault(shape.name, {})
        sets = _inputs(shape)
        trial = Trial(shape, sets, _expected(shape, sets[0]), gpu)
        for backend in BACKENDS:
            if f"sdpa {backend}" not in rows:
                rows[f"sdpa {backend}"] = _sdpa(trial, backend)
                _write(out, results)
        for name, case in cases[shape].items():
            if name not in rows and name not in failed:
                results["begun"] = [shape.name, name]
                _write(out, results)
                rows[name] = _tactic_row(trial, case, compiled)
                del results["begun"]
                _write(out, results)


def _compile(cases: dict[Shape, dict[str, Case]]) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
    specs = [
        spec
        for found in cases.values()
        for case in found.values()
        for draft in case.tactic.drafts
        for spec in draft.kernels
    ]
    begun = time.monotonic()
    compiled = compile_all(specs, [90])
    print(f"{len(compiled)} kernels in {time.monotonic() - begun:.0f} s", flush=True)
    for spec, kernel in compiled.items():
        if isinstance(kernel, CompileFailure):
            print(f"{spec.function} {dict(spec.constants)}: {kernel.reason}", flush=True)
        elif kernel.spills:
            print(f"{spec.function} {dict(spec.constants)}: {kernel.spills} words spilled", flush=True)
    return compiled


def _mask(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """See Shape; padding is a part of up to a half of each sample."""
    size = mask_size(shape)
    if shape.mask != "padding":
        return torch.randn(size, device="cuda", generator=generator).half()
    lengths = torch.randint(shape.T // 2, shape.T + 1, (shape.B, 1, 1, 1), device="cuda", generator=generator)
    is_there = torch.arange(shape.T, device="cuda") < lengths
    return torch.zeros(size, device="cuda", dtype=torch.float16).masked_fill_(~is_there, -math.inf)


def _inputs(shape: Shape) -> list[list[torch.Tensor]]:
    """Sets of q, k, v and a mask, as many as do not fit the L2 cache; views of merged projections."""
    set_bytes = 2 * shape.B * shape.H * shape.D * (shape.S + 2 * shape.T)
    generator = torch.Generator("cuda").manual_seed(0)
    sets = []
    for _ in range(max(2, min(CALLS, math.ceil(COLD_BYTES / set_bytes)))):
        views = []
        for part, length in enumerate((shape.S, shape.T, shape.T)):
            size = (shape.B, length, 3, shape.H, shape.D)
            merged = torch.randn(size, device="cuda", dtype=torch.float16, generator=generator)
            if shape.outliers and part == 1:
                merged += 8 * torch.randn(shape.H, shape.D, device="cuda", generator=generator).half()
            if shape.outliers and part < 2:
                merged[:, ::500] *= 20
            views.append(merged[:, :, part].transpose(1, 2))
        sets.append([*views, _mask(shape, generator)] if shape.mask else views)
    return sets


def _queries(shape: Shape) -> torch.Tensor:
    """Which are checked: evenly apart, the last one among them."""
    return torch.linspace(0, shape.S - 1, min(QUERIES, shape.S), device="cuda").long()


def _expected(shape: Shape, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """In float64, head by head."""
    q, k, v, *masks = inputs
    chosen = _queries(shape)
    added = [mask[:, :, chosen if shape.mask == "rows" else slice(None)].double() for mask in masks]
    is_later = torch.arange(shape.T, device="cuda") > chosen[:, None]
    heads = []
    for sample in range(shape.B):
        for head in range(shape.H):
            scores = q[sample, head, chosen].double() @ k[sample, head].double().T / math.sqrt(shape.D)
            for mask in added:
                scores = scores + mask[min(sample, len(mask) - 1), 0]
            if shape.is_causal:
                scores = scores.masked_fill(is_later, -math.inf)
            heads.append(torch.softmax(scores, -1) @ v[sample, head].double())
    return torch.stack(heads).view(shape.B, shape.H, len(chosen), shape.D)


def _sdpa(trial: Trial, backend: str) -> dict[str, Any]:
    def run(inputs: list[torch.Tensor]) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[backend]):
            q, k, v, *masks = inputs
            mask = masks[0] if masks else None
            return scaled_dot_product_attention(q, k, v, mask, is_causal=trial.shape.is_causal)

    try:
        return _row(trial, run, FLOATS)
    except RuntimeError as error:  # what a backend does not take
        return {"error": str(error).splitlines()[0][:100]}


def _tactic_row(
    trial: Trial, case: Case, compiled: dict[KernelSpec, CompiledKernel | CompileFailure]
) -> dict[str, Any]:
    tactic = case.tactic
    kernels: dict[KernelSpec, CompiledKernel] = {}
    for draft in tactic.drafts:
        for spec in draft.kernels:
            kernel = compiled[spec]
            if isinstance(kernel, CompileFailure):
                return {"error": kernel.reason}
            kernels[spec] = kernel
    attending = kernels[tactic.drafts[-1].kernels[0]]
    facts = {
        "registers": attending.registers,
        "spills": attending.spills,
        "shared": attending.shared_bytes[90],
    }
    device = torch.device("cuda")
    try:
        with OpenTactic(tactic, "attention", kernels, device, weights={}, fill=_poison) as opened:
            row = _row(trial, lambda inputs: opened.run(inputs)[0], case.kinds)
        if len(tactic.drafts) > 1:
            with OpenTactic(_alone(tactic.drafts[0]), "codes", kernels, device, weights={}) as opened:
                row["encode_us"] = graph_us(lambda i: opened.run(trial.sets[0]), CALLS)
    except Exception as error:  # noqa: BLE001  the next form may run
        torch.cuda.synchronize()
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {**row, **facts}


def _alone(draft: Draft) -> Tactic:
    return Tactic("triton", "codes", (draft,))


def _poison(tensor: torch.Tensor) -> object:
    return tensor.fill_(math.nan) if tensor.is_floating_point() else tensor.fill_(85)


def _row(
    trial: Trial, run: Callable[[list[torch.Tensor]], torch.Tensor], kinds: tuple[str, str]
) -> dict[str, Any]:
    """Errors, then times; of products of these kinds."""
    shape, sets, expected = trial.shape, trial.sets, trial.expected
    whole, again = run(sets[0]).clone(), run(sets[0]).clone()  # later runs write to the same memory
    got = whole[:, :, _queries(shape)].double()
    torch.cuda.synchronize()
    hot_us = graph_us(lambda i: run(sets[0]), CALLS)
    cold_us = graph_us(lambda i: run(sets[i % len(sets)]), CALLS)
    return {
        "hot_us": hot_us,
        "cold_us": cold_us,
        "tflops": shape.flops / hot_us / 1e6,
        "relative_l2": float((got - expected).norm() / expected.norm()),
        "cosine": float(torch.nn.functional.cosine_similarity(got.flatten(), expected.flatten(), dim=0)),
        "largest_error": float((got - expected).abs().max()),
        "is_finite": bool(whole.isfinite().all()),
        "is_repeatable": bool(torch.equal(whole, again)),
        **_floors(shape, kinds, trial.gpu),
    }


def _floors(shape: Shape, kinds: tuple[str, str], gpu: GpuFacts) -> dict[str, float]:
    """The least that tensor cores, exponentials and memory take, at the data sheet's peaks."""
    peaks = {"int8": gpu.int8_tops, "fp8": gpu.fp8_tflops, "floats": gpu.fp16_tflops}
    scores, values = kinds
    half = shape.flops / 2
    moved = 2 * shape.B * shape.H * shape.D * 2 * (shape.S + shape.T)
    exponentials = shape.flops / (4 * shape.D)
    return {
        "tensor_us": half / (1e6 * (peaks[scores] or 1)) + half / (1e6 * (peaks[values] or 1)),
        "exponential_us": 1e6 * exponentials / (EXPONENTIALS_PER_CLOCK * gpu.multiprocessors * CLOCK_HZ),
        "bytes_us": moved / gpu.memory_bytes_per_us,
    }


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The first of two results, with shapes and forms that it lacks where the second has kernels of ours."""
    if first["environment"] != second["environment"]:
        raise SystemExit(f"not of one machine: {first['environment']} and {second['environment']}")
    rows = {shape: dict(forms) for shape, forms in first["rows"].items()}
    for shape, forms in second["rows"].items():
        if any(name.startswith("attention") for name in forms):
            rows[shape] = {**forms, **rows.get(shape, {})}
    commits = sorted({*commits_of(first), *commits_of(second)})
    return {"environment": first["environment"], "commits": commits, "rows": rows}


def _write(out: Path, results: dict[str, Any]) -> None:
    part = out.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(out)


if __name__ == "__main__":
    main()
