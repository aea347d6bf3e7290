# SPDX-License-Identifier: Apache-2.0
"""Scales per token on an NVIDIA GPU: `python -m benchmarks.cuda_per_token OUT.json [ROW ...]`.

Six layers of BERT-large with seeded random weights, in three engines: fp16, int8 with static scales of
activations, and int8 with a scale for each token, found as the model runs. All have the kernels that are
fastest by themselves, products that are slower in codes among them in fp16; they are timed in turns, replays
on inputs that are on the device. Outputs are held against torch in float32. Needs a GPU and the `bench` and
`cuda` extras.
"""

__all__ = ["LAYERS"]

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.cuda.codes import by_torch, codes_of, few_samples
from benchmarks.cuda.timing import commit, environment, time_in_turns
from benchmarks.cuda_engines import Row, export_module, inputs_of, module_of
from benchmarks.pages.cuda.per_token import cuda_per_token_page
from benchmarks.tasks.inputs import Feed
from quantrt.config import CudaConfig, QuantizeConfig
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering

LAYERS = 6
ENGINES = {"fp16": None, "static": "static", "per token": "per-token"}
ROWS = tuple(
    Row(f"bert-b{batch}-s{length}", "bert_large", batch, length)
    for batch, length in ((1, 16), (1, 128), (8, 384), (32, 384))
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time engines with static scales and with one per token.")
    parser.add_argument("out", type=Path)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    results["environment"] = environment()
    for row in ROWS:
        if not args.rows or row.name in args.rows:
            results["rows"][row.name] = _measure(row, args.level)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_per_token_page(results))
            print(json.dumps({row.name: results["rows"][row.name]}), flush=True)


def _measure(row: Row, level: int) -> dict[str, Any]:
    module, feed = module_of(row), inputs_of(row)
    bert: Any = module.bert
    bert.encoder.layer = bert.encoder.layer[:LAYERS]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        export_module(module, path, few_samples(feed), list(feed), has_free_batch=True)
        model = for_gpu(load_model(path))
    want = by_torch(module, feed)
    facts: dict[str, Any] = {"batch": row.batch, "length": row.length, "commit": commit(), "engines": {}}
    runs: dict[str, Callable[[], object]] = {}
    executors = []
    with closing(CudaLowering(model, CudaConfig(builder_optimization_level=level), feed)) as lowering:
        for name, activations in ENGINES.items():
            began = time.perf_counter()
            made, _ = lowering.lower(_codes(model, activations, feed), "fp16")
            program = program_from_model(made)
            one = CudaExecutor(program, model.inputs, model.outputs)
            executors.append(one)
            (got,) = one.run(feed).values()
            facts["engines"][name] = {
                "build_s": time.perf_counter() - began,
                "sqnr_db": sqnr_db(want, got),
                **_kernels(program),
            }
            runs[name] = one.prepare(feed, waits=False)
    facts["ms"] = time_in_turns(runs)
    for one in executors:
        one.close()
    return facts


def _codes(model: Model, activations: str | None, feed: Feed) -> QuantizedModel | None:
    if activations is None:
        return None
    return codes_of(model, CUDA, QuantizeConfig(activations=activations), feed)


def _kernels(program: Program) -> dict[str, Any]:
    """Microseconds of the products by what they multiply, and of all regions of a kind; each by itself."""
    regions: Mapping[str, Mapping[str, Any]] = program.notes["regions"]
    products: dict[str, dict[str, Any]] = {}
    kinds: dict[str, float] = {}
    for row in regions.values():
        if row["median_us"] is None:
            continue
        kind = "Gemm" if row["product"] is not None else row["formula"]
        kinds[kind] = kinds.get(kind, 0.0) + row["median_us"]
        if row["product"] is not None:
            dtype, shape = row["attributes"]["weight"]
            key = f"{dtype} {shape[0]}x{shape[1]}"
            products.setdefault(key, {"us": row["median_us"], "tactic": row["tactic"], "count": 0})
            products[key]["count"] += 1
    rejected = {
        name: reason
        for table in program.notes["candidates"].values()
        for name, us, reason in table
        if us is None and "differs" in reason
    }
    return {"products": products, "kinds_us": kinds, "wrong": rejected}


if __name__ == "__main__":
    main()
