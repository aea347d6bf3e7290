# SPDX-License-Identifier: Apache-2.0
"""Engines on an NVIDIA GPU against torch.compile: `python -m benchmarks.cuda_engines OUT.json [ROW ...]`.

Each row exports a model with seeded random weights, builds an fp16 and an int8 engine of it, of transformers
with many samples an fp8 one too, and times them and `torch.compile` in fp16 under a CUDA graph in turns:
replays on inputs that are on the device, by CUDA events. Outputs are held against ONNX Runtime in FP32. With
`--only fp16 --only bf16` there is one in bf16. Needs a GPU and the `bench` and `cuda` extras.
"""

__all__ = ["ROWS", "Row", "export_module", "inputs_of", "module_of"]

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quantrt
from benchmarks.cuda.timing import commit, enqueued, environment, time_in_turns
from benchmarks.models import calibrated_vision_model
from benchmarks.nets.detector import HEADS
from benchmarks.pages.cuda.engines import BF16, cuda_page
from benchmarks.tasks.inputs import (
    DETECTOR,
    IMAGE_SIZE,
    SEQUENCE_LENGTH,
    UNET,
    image_size,
    make_images,
    make_tokens,
)
from quantrt.config import BenchConfig, Budget, BuildConfig, CalibrationConfig, CudaConfig, DeviceConfig

CALIBRATION_SAMPLES = 8
LARGE_SAMPLES = 4
"""Of images above IMAGE_SIZE."""

HOST_GROUPS = 20
HOST_SAMPLES = 25


@dataclass(frozen=True)
class Row:
    """One model at one size; `length` is of text, in tokens."""

    name: str
    model: str
    batch: int
    length: int = 0

    @property
    def precisions(self) -> tuple[str, ...]:
        """Of the engines: FP8 too where most of the time is products: transformers of many samples."""
        is_products = bool(self.length) or self.model.startswith("vit_")
        return ("fp16", "int8", "fp8") if is_products and self.batch > 1 else ("fp16", "int8")


ROWS = (
    Row("resnet50-b1", "resnet50", 1),
    Row("resnet50-b32", "resnet50", 32),
    Row("resnet50-b256", "resnet50", 256),
    Row("resnet18-b32", "resnet18", 32),
    Row("resnet18-b256", "resnet18", 256),
    Row("mobilenetv2-b32", "mobilenetv2_100", 32),
    Row("mobilenetv3_large-b32", "mobilenetv3_large_100", 32),
    Row("efficientnet_b0-b32", "efficientnet_b0", 32),
    Row("efficientvit_b1-b32", "efficientvit_b1", 32),
    Row("detector_s-b1", DETECTOR, 1),
    Row("detector_s-b8", DETECTOR, 8),
    Row("unet-b1", UNET, 1),
    Row("vit_b16-b1", "vit_base_patch16_224", 1),
    Row("vit_b16-b32", "vit_base_patch16_224", 32),
    Row("minilm-b32", "minilm", 32, SEQUENCE_LENGTH),
    Row("bert_large-b1-s128", "bert_large", 1, 128),
    Row("bert_large-b1-s384", "bert_large", 1, 384),
    Row("bert_large-b32-s384", "bert_large", 32, 384),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time CUDA engines against torch.compile.")
    parser.add_argument("out", type=Path)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    parser.add_argument("--no-peer", action="store_true", help="skip torch.compile")
    parser.add_argument(
        "--no-rebuild", action="store_true", help="one timing cache for both engines, no rebuilds"
    )
    parser.add_argument("--only", action="append", metavar="PRECISION", help="engines, repeatable")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    results["environment"] = environment()
    for row in ROWS:
        if not args.rows or row.name in args.rows:
            measured = _measure(row, args)
            results.setdefault(BF16 if BF16 in measured else "rows", {})[row.name] = measured
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_page(results))
            print(json.dumps({row.name: measured}, indent=1), flush=True)


def _measure(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    module, feed = module_of(row), inputs_of(row)
    names = list(feed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{row.model}.onnx"
        export_module(module, path, feed, names, has_free_batch=row.length > 0)
        want = _float_outputs(path, feed)
        result: dict[str, Any] = {"onnx_bytes": path.stat().st_size, "commit": commit()}
        runs: dict[str, Callable[[], object]] = {}
        engines = []
        for precision in args.only or row.precisions:
            cache = Path(folder) / ("timings.json" if args.no_rebuild else f"{precision}.json")
            try:
                engine, build_s = _build(path, precision, row, args.level, cache)
                rebuild_s = None
                if not args.no_rebuild:
                    again, rebuild_s = _build(path, precision, row, args.level, cache)
                    again.close()
            except quantrt.QuantRtError as error:
                result[precision] = {"error": str(error)}
                continue
            engines.append(engine)
            is_cold = precision == "fp16" or not args.no_rebuild
            result[precision] = {
                "build_s": build_s if is_cold else None,
                "rebuild_s": rebuild_s,
                "ships": engine.precision,
            }
            result[precision] |= _engine_facts(engine, Path(folder), feed, want)
            runs[precision] = enqueued(engine.executor, feed)
        if not args.no_peer:
            peer = module if row.length else calibrated_vision_model(row.model, exportable=False)
            runs["torch.compile fp16"] = _compiled(peer, feed, names)
        result["ms"] = time_in_turns(runs)
        for engine in engines:
            engine.close()
    return result


def module_of(row: Row) -> torch.nn.Module:
    """The row's model with seeded random weights, for inference."""
    torch.manual_seed(0)
    if row.length:
        from transformers import BertConfig, BertModel

        sizes = {
            "minilm": {
                "hidden_size": 384,
                "num_hidden_layers": 6,
                "num_attention_heads": 12,
                "intermediate_size": 1536,
            },
            "bert_large": {
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
            },
        }[row.model]

        class Encoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bert = BertModel(
                    BertConfig(**sizes, attn_implementation="sdpa"), add_pooling_layer=False
                )

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

        return Encoder().eval()
    return calibrated_vision_model(row.model)


def inputs_of(row: Row) -> dict[str, np.ndarray]:
    """The arguments of the row's model in their order, by name."""
    if not row.length:
        return {"images": make_images(row.batch, image_size(row.model), 0)}
    tokens = make_tokens(row.batch, row.length, 0)
    return {name: tokens[name] for name in ("input_ids", "attention_mask")}


def export_module(
    module: torch.nn.Module,
    path: Path,
    feed: dict[str, np.ndarray],
    names: list[str],
    *,
    has_free_batch: bool,
) -> None:
    """Write the module; with a free batch, a few samples are enough to calibrate a large one."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    rows = max(2, len(feed[names[0]])) if has_free_batch else len(feed[names[0]])
    samples = {name: np.resize(feed[name], (rows, *feed[name].shape[1:])) for name in names}
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(samples[name]) for name in names),
        path,
        dynamic_shapes=tuple({0: batch} for _ in names) if has_free_batch else None,
        input_names=names,
        output_names=list(HEADS) if path.stem == DETECTOR else ["output"],
        opset_version=18,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def _float_outputs(path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def _build(path: Path, precision: str, row: Row, level: int, cache: Path) -> tuple[quantrt.Engine, float]:
    """The engine, and the seconds that its build took."""
    floats = BF16 if precision == BF16 else "fp16"
    config = BuildConfig(
        precisions=frozenset({"fp32", floats, precision}),
        device=DeviceConfig(device="cuda"),
        cuda=CudaConfig(builder_optimization_level=level, timing_cache=str(cache)),
        calibration=CalibrationConfig(method="minmax"),
        budget=Budget(metric="sqnr", max_drop_ratio=1.0),
        bench=BenchConfig(batch=row.batch),
    )
    data = _calibration_data(row)
    began = time.perf_counter()
    engine = quantrt.build(path, config=config, calibration=data)
    return engine, time.perf_counter() - began


def _calibration_data(row: Row) -> list[dict[str, np.ndarray]]:
    """Batches of samples: one of text, whose batch is free; of images as many as the model's batch each."""
    if row.length:
        return [inputs_of(replace(row, batch=CALIBRATION_SAMPLES))]
    samples = CALIBRATION_SAMPLES if image_size(row.model) <= IMAGE_SIZE else LARGE_SAMPLES
    count = max(1, samples // row.batch)
    images = inputs_of(replace(row, batch=count * row.batch))["images"]
    return [{"images": batch} for batch in np.split(images, count)]


def _engine_facts(
    engine: quantrt.Engine,
    folder: Path,
    feed: dict[str, np.ndarray],
    want: dict[str, np.ndarray],
) -> dict[str, Any]:
    path = folder / "engine.qrt"
    engine.save(path)
    got = engine.run(feed)
    began = time.perf_counter()
    quantrt.load(path).close()
    load_s = time.perf_counter() - began
    host_us = _host_us(enqueued(engine.executor, feed))
    noise = _power({name: got[name] - want[name] for name in want}) / _power(want)
    return {
        "engine_bytes": path.stat().st_size,
        "load_s": load_s,
        "host_us": host_us,
        "sqnr_db": float(-10 * np.log10(max(noise, 1e-30))),
        "candidates": [_candidate(row) for row in engine.report["candidates"]],
        "notes": list(engine.report["notes"]),
    }


def _candidate(row: dict[str, Any]) -> dict[str, Any]:
    latency = row.get("latency") or {}
    return {k: row[k] for k in ("name", "status", "reason")} | {"median_ms": latency.get("median_ms")}


def _power(arrays: dict[str, np.ndarray]) -> float:
    return float(sum((array.astype(np.float64) ** 2).sum() for array in arrays.values()))


def _host_us(enqueue: Callable[[], object]) -> float:
    """Microseconds of the calling thread for one replay, with the GPU idle: of some medians the least.

    What else runs on the host can only make a replay longer, and does so for a while; a group of samples is
    short enough that some are left in peace.
    """
    medians = []
    for _ in range(HOST_GROUPS):
        samples = []
        for _ in range(HOST_SAMPLES):
            torch.cuda.synchronize()
            began = time.perf_counter()
            enqueue()
            samples.append(1e6 * (time.perf_counter() - began))
        medians.append(float(np.median(samples)))
    return min(medians)


def _compiled(module: torch.nn.Module, feed: dict[str, np.ndarray], names: list[str]) -> Callable[[], object]:
    """The module in fp16 through torch.compile, captured in a CUDA graph."""
    half = module.half().cuda()
    inputs = [torch.from_numpy(feed[name]).cuda() for name in names]
    inputs = [x.half() if x.is_floating_point() else x for x in inputs]
    if inputs[0].dim() == 4:
        half = half.to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
        inputs[0] = inputs[0].contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(half)
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            compiled(*inputs)
    return graph.replay


if __name__ == "__main__":
    main()
