# SPDX-License-Identifier: Apache-2.0
"""Kernels of engines on an NVIDIA GPU against its peaks: `python -m benchmarks.cuda_roofline OUT.json`.

The peaks are measured first: products of 8192 x 8192 x 8192 by the library and by our kernels, and a copy.
Then a few layers of each network are lowered in fp16, int8 and FP8, and every kernel that was chosen is held
against the longest of three times: of its products, of its bytes, and of the exponentials of attention. Needs
a GPU and the `bench` and `cuda` extras. Names of networks behind OUT.json measure these alone.

    python -m benchmarks.cuda_roofline OUT.json NETWORK --timings FILE --at COMMIT

takes the kernels of a network from the timing cache that a build left, on any machine. Peaks are those that
`quantrt explain` goes by then.
"""

__all__ = ["main"]

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda.codes import codes_of, few_samples
from benchmarks.cuda.timed_kernels import kernels_of
from benchmarks.cuda.timing import commit, environment, graph_us
from benchmarks.cuda.tuned import tuned
from benchmarks.cuda_engines import ROWS, export_module, inputs_of, module_of
from benchmarks.cuda_kernels import product
from benchmarks.pages.cuda.roofline import cuda_roofline_page
from quantrt.config import CudaConfig, QuantizeConfig
from quantrt.gpu import GpuFacts
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.report.explain.peaks import gpu_peaks
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.tuning.choices import Choice
from quantrt.tactics.cuda.tuning.tune import TuneOptions

NETWORKS = ("bert_large-b32-s384", "vit_b16-b32")
LAYERS = 3
"""Of a network: the first and the last may be others than those between."""

TARGETS = {"fp16": None, "int8": CUDA, "fp8": CUDA_FP8}
SIDE = 8192
SOURCE = (
    "Measured in the same run: products of 8192 x 8192 x 8192, the library's (cuBLASLt through torch) with "
    "nothing behind them, ours with a scale and a bias for each channel and codes again. The faster counts."
)
OWN = "triton"
"""The source of tactics that are ours."""

COPIED_BYTES = 1 << 30
CALLS = 4

EXPONENTIALS = 16
"""Of float32, per multiprocessor and clock (CUDA C++ Programming Guide, throughput of arithmetic)."""

CLOCK_MHZ, MULTIPROCESSORS = 1980.0, 132
"""The highest clock of an H200, and what it has."""

VIT_TOKENS = 197
"""Of an image of 224 pixels in patches of 16, and one for its class."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold an engine's kernels against the roofline.")
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: " + ", ".join(NETWORKS))
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    parser.add_argument("--timings", type=Path, metavar="FILE", help="of a build: nothing is measured")
    parser.add_argument("--at", metavar="COMMIT", help="of those timings")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"networks": {}}
    results["layers"] = LAYERS
    if args.timings is None:
        results |= {"environment": environment(), "peaks": _peaks(describe_gpu(), args.level)}
    else:
        results |= _as_timed(args.timings)
    for name in args.networks or NETWORKS:
        kept = None if args.timings is None else _kept(name, args.timings)
        engines = kept or _engines(name, args.level)
        results["networks"][name] = {"commit": args.at or commit(), "engines": engines}
        args.out.write_text(json.dumps(results, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(cuda_roofline_page(results))
        print(json.dumps({name: results["networks"][name]}), flush=True)


def _as_timed(path: Path) -> dict[str, Any]:
    """Where timings were taken, and the peaks of that GPU."""
    found = json.loads(path.read_text())["environment"]
    peaks = gpu_peaks({"gpu": [{"name": found["gpu"]}]})
    if peaks is None:
        raise SystemExit(f"no peaks are known of {found['gpu']}")
    return {
        "environment": {
            "gpu": found["gpu"],
            "packages": {name: found[name].partition("+")[0] for name in ("torch", "triton")},
        },
        "peaks": {
            "operations_per_us": {
                name: rate for name, rate in peaks.operations_per_us.items() if name in TARGETS
            },
            "bytes_per_us": peaks.bytes_per_us[-1][1],
            "exponentials_per_us": EXPONENTIALS * CLOCK_MHZ * MULTIPROCESSORS,
            "source": f"Those of `quantrt explain`: {peaks.source}.",
        },
    }


def _kept(name: str, path: Path) -> dict[str, Any]:
    """The kernels of a network in a timing cache, by precision."""
    row = next(row for row in ROWS if row.name == name)
    kernels = kernels_of(path, row.batch, row.length or VIT_TOKENS)
    return {precision: {"kernels": rows} for precision, rows in kernels.items() if rows}


def _peaks(gpu: GpuFacts, level: int) -> dict[str, Any]:
    """Operations per microsecond by what does them, bytes per microsecond, exponentials per microsecond."""
    operations = 2 * SIDE**3
    rates = {f"{name}, library": operations / us for name, us in _library_us()}
    for precision, dtype in (("int8", "int8"), ("fp8", "float8_e4m3fn")):
        workload = product(SIDE, SIDE, SIDE, dtype)
        choices = tuned([workload], gpu, TuneOptions(level=level, excluded_sources=("cublaslt", "torch")))
        rates |= own_rate(precision, operations, choices.by_region[workload.region])
    source = torch.empty(COPIED_BYTES, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    copied_us = graph_us(lambda call: target.copy_(source), CALLS)
    cores = torch.cuda.get_device_properties(0).multi_processor_count
    return {
        "operations_per_us": rates,
        "bytes_per_us": 2 * COPIED_BYTES / copied_us,
        "exponentials_per_us": EXPONENTIALS * CLOCK_MHZ * cores,
        "source": SOURCE,
    }


def own_rate(precision: str, operations: int, choice: Choice) -> dict[str, float]:
    """Operations per microsecond of our kernel, by what it is called; nothing where there is none.

    With the libraries left out the reference may be all that is right, torch's in FP32 without tensor cores.
    """
    if choice.median_us is None or choice.tactic.source != OWN:
        return {}
    return {f"{precision}, ours: {choice.tactic.name}": operations / choice.median_us}


def _library_us() -> Iterator[tuple[str, float]]:
    """Microseconds of the library's products, without anything behind them."""
    halves = [torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in range(2)]
    codes = [torch.randint(-127, 128, (SIDE, SIDE), device="cuda", dtype=torch.int8) for _ in range(2)]
    floats = [x.to(torch.float8_e4m3fn) for x in halves]
    one = torch.ones((), device="cuda")
    runs: dict[str, Callable[[int], object]] = {
        "fp16": lambda call: torch.mm(halves[0], halves[1].t()),
        "int8": lambda call: torch._int_mm(codes[0], codes[1].t()),
        "fp8": lambda call: torch._scaled_mm(floats[0], floats[1].t(), one, one, out_dtype=torch.float16),
    }
    for name, run in runs.items():
        yield name, graph_us(run, CALLS)


def _engines(name: str, level: int) -> dict[str, Any]:
    """The kernels of a few layers, by precision."""
    row = next(row for row in ROWS if row.name == name)
    module, feed = module_of(row), inputs_of(row)
    _shorten(module)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        given = few_samples(feed) if row.length else feed
        export_module(module, path, given, list(feed), has_free_batch=row.length > 0)
        model = for_gpu(load_model(path))
    found: dict[str, Any] = {}
    with closing(CudaLowering(model, CudaConfig(builder_optimization_level=level), feed)) as lowering:
        for precision, target in TARGETS.items():
            began = time.perf_counter()
            quantized = None if target is None else codes_of(model, target, QuantizeConfig(), feed)
            made, _ = lowering.lower(quantized, "fp16", None)
            kernels = _kernels(program_from_model(made).notes["regions"])
            found[precision] = {"lowered_s": time.perf_counter() - began, "kernels": kernels}
    return found


def _shorten(module: Any) -> None:
    """Leave a few layers of a transformer."""
    if hasattr(module, "bert"):
        module.bert.encoder.layer = module.bert.encoder.layer[:LAYERS]
    else:
        module.blocks = module.blocks[:LAYERS]


def _kernels(regions: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Kernels of layers, in the order in which they first run: what is there once is no layer's."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in regions.values():
        if row["median_us"] is None:
            continue
        facts = {
            "label": _label(row),
            "kind": row["formula"],
            "stores": [dtype for _, dtype, _, _ in row["outputs"]],
            "computes_in": _computes_in(row),
            "tactic": row["tactic"],
            "us": row["median_us"],
            "bytes": row["bytes"],
            "operations": row["operations"],
            "inputs": row["inputs"][0][2][-1],
            "exponentials": _exponentials(row),
        }
        key = (facts["label"], *facts["stores"], facts["us"])
        found.setdefault(key, {**facts, "count": 0})["count"] += 1
    return [facts for facts in found.values() if facts["count"] > 1]


def _label(row: Mapping[str, Any]) -> str:
    """What a kernel does, with its sizes."""
    shapes = [shape for _, _, shape, _ in row["inputs"]]
    if row["product"] is not None:
        dtype, weight = row["attributes"]["weight"]
        K = shapes[0][-1]
        rows, columns = math.prod(shapes[0][:-1]), math.prod(weight) // K
        steps = row["attributes"].get("epilogue", [])
        extra = " + GELU" if "erf" in steps else " + residual" if len(shapes) > 1 else ""
        return f"product {rows}x{columns}x{K}{extra}"
    if row["formula"] == "Attention":
        B, H, S, D = shapes[0]
        return f"attention {B}x{H}x{S}x{D}"
    name = "norm" if "rsqrt" in row["attributes"].get("expression", []) else row["formula"].lower()
    return f"{name} {'x'.join(map(str, shapes[0]))}"


def _computes_in(row: Mapping[str, Any]) -> str:
    """The precision whose peak counts: attention multiplies halves."""
    return row["codes"] or "fp16"


def _exponentials(row: Mapping[str, Any]) -> int:
    """Of a softmax: one for every query and key."""
    if row["formula"] != "Attention":
        return 0
    (B, H, S, _), keys = row["inputs"][0][2], row["inputs"][1][2][2]
    return int(B * H * S * keys)


if __name__ == "__main__":
    main()
