# SPDX-License-Identifier: Apache-2.0
"""BERT-large over a batch with its padding and without: `python -m benchmarks.cuda_padding OUT`.

One batch of SQuAD's lengths: seeded, cut off at the length of the batch, 46 % of it on average (MLPerf's BERT
has 54 % padding). Every precision has an engine that computes padding and one that leaves it out, of the same
codes; they are timed in turns, replays on inputs that are on the device. Tokens of both are held against
torch in float32. Needs a GPU and the `bench` and `cuda` extras.
"""

__all__ = ["padded_tokens", "squad_lengths"]

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.cuda.codes import by_torch, codes_of, few_samples
from benchmarks.cuda.timing import commit, environment, time_in_turns
from benchmarks.cuda_engines import Row, export_module, inputs_of, module_of
from benchmarks.pages.cuda.padding import cuda_padding_page
from benchmarks.tasks.inputs import Feed
from quantrt.config import CudaConfig, QuantizeConfig
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.padding.zero_padding import zero_padding

MEAN_RATIO = 0.46
"""Of tokens in SQuAD's batches of 384 places (MLPerf Inference, BERT)."""

SHAPE = 6.0
"""Of the gamma distribution that lengths are drawn from: a standard deviation of 0.4 of their mean."""

LEAST_TOKENS = 16
MASK = "attention_mask"
TARGETS = {"int8": CUDA, "fp8": CUDA_FP8}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time engines with padding and without.")
    parser.add_argument("out", type=Path)
    parser.add_argument("precisions", nargs="*", default=["int8", "fp16"], help="default: int8 fp16")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    args = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "commit": commit()}

    def note(**facts: Any) -> None:
        result.update(facts)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
        if "tokens" in result:
            args.out.with_suffix(".md").write_text(cuda_padding_page(result))
        print(json.dumps(facts), flush=True)

    row = Row("bert_large", "bert_large", args.batch, args.length)
    feed = padded_tokens(row, squad_lengths(args.batch, args.length))
    count = int(feed[MASK].sum())
    note(batch=args.batch, length=args.length, tokens=count, token_ratio=count / feed[MASK].size)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        module, path = module_of(row), Path(folder) / "bert.onnx"
        export_module(module, path, few_samples(feed), list(feed), has_free_batch=True)
        model = for_gpu(load_model(path))
        note(export_s=time.perf_counter() - began)
        want = by_torch(module, feed)
        for precision in args.precisions:
            note(**{precision: _measure(model, precision, feed, want, args.level)})


def squad_lengths(batch: int, length: int) -> npt.NDArray[np.int64]:
    """Tokens of every sample."""
    rng = np.random.default_rng(0)
    drawn = rng.gamma(SHAPE, MEAN_RATIO * length / SHAPE, batch)
    return np.clip(drawn.round().astype(np.int64), LEAST_TOKENS, length)


def padded_tokens(row: Row, lengths: npt.NDArray[np.int64]) -> Feed:
    """Inputs of the row's model, padded behind these lengths."""
    tokens = inputs_of(row)
    mask = (np.arange(row.length) < lengths[:, None]).astype(np.int64)
    return {"input_ids": tokens["input_ids"] * mask, MASK: mask}


def _measure(
    model: Model, precision: str, feed: Feed, want: npt.NDArray[np.float32], level: int
) -> dict[str, Any]:
    """An engine that computes padding and one that does not."""
    facts: dict[str, Any] = {}
    runs: dict[str, Callable[[], object]] = {}
    executors = []
    began = time.perf_counter()
    codes = codes_of(model, TARGETS[precision], QuantizeConfig(), feed) if precision in TARGETS else None
    facts["codes_s"] = time.perf_counter() - began
    is_token = feed[MASK] != 0
    for name, mask in (("padded", None), ("unpadded", MASK)):
        one, program, build_s = _engine(model, codes, feed, level=level, mask=mask)
        executors.append(one)
        (got,) = one.run(feed).values()
        facts[name] = {
            "build_s": build_s,
            "sqnr_db": sqnr_db(want[is_token], got[is_token]),
            "largest_at_padding": float(np.abs(got[~is_token]).max()),
            "kernels_us": _kernels_us(program),
            "notes": program.notes["tuning"],
        }
        runs[name] = one.prepare(feed, waits=False)
    facts["ms"] = time_in_turns(runs)
    medians = {name: quantiles["p50"] for name, quantiles in facts["ms"].items()}
    facts["ratio"] = medians["padded"] / medians["unpadded"]
    facts["sequences_per_s"] = {name: 1e3 * len(is_token) / ms for name, ms in medians.items()}
    for one in executors:
        one.close()
    return facts


def _engine(
    model: Model, codes: QuantizedModel | None, feed: Feed, *, level: int, mask: str | None
) -> tuple[CudaExecutor, Program, float]:
    """Without the FP32 engine and the checks of a build; the last number are seconds."""
    began = time.perf_counter()
    config = CudaConfig(builder_optimization_level=level, remove_padding=mask)
    model = zero_padding(model, mask)
    if codes is not None:
        codes = replace(codes, graph=zero_padding(replace(model, graph=codes.graph), mask).graph)
    lowering = CudaLowering(model, config, feed)
    try:
        lowered, _ = lowering.lower(codes, "fp16")
    finally:
        lowering.close()
    program = program_from_model(lowered)
    return CudaExecutor(program, model.inputs, model.outputs), program, time.perf_counter() - began


def _kernels_us(program: Program) -> dict[str, float]:
    """Microseconds of all regions of a kind, each timed by itself."""
    found: dict[str, float] = {}
    for row in program.notes["regions"].values():
        if row["median_us"] is not None:
            found[row["formula"]] = found.get(row["formula"], 0.0) + row["median_us"]
    return found


if __name__ == "__main__":
    main()
