# SPDX-License-Identifier: Apache-2.0
"""Networks that denoise at every quantization level, against torch.compile in fp16: step by step.

    python -m benchmarks.diffusion graph FOLDER     # the graph without weights: minutes, on any machine
    python -m benchmarks.diffusion weights FOLDER   # random weights beside it: 10 GB
    python -m benchmarks.diffusion ranges FOLDER    # of one sample
    python -m benchmarks.diffusion build FOLDER fp16 int8@1 int8@2 int8@2.5 int8@3 int8@4 fp8@3 int8@auto
    python -m benchmarks.diffusion time FOLDER      # all engines in turns
    python -m benchmarks.diffusion peer FOLDER      # torch.compile alone, on a second GPU if there is one
    python -m benchmarks.diffusion peer FOLDER --torchao int8    # the same with torchao
    python -m benchmarks.diffusion_levels FOLDER int8@1 int8@2 ...    # all of these beside one fp16 engine

Rows go to FOLDER/RESULTS.json as they are known, those of `peer` to FOLDER/PEER.json. The full configuration
has 2.57 billion weights, seeded normal ones, drawn where DEVICE is. Times are those of the real network; the
signal over noise is that of one that never learned to tell them apart. `--net` is another network, in a
folder of its own: the UNet of SD 1.5 for 512x512 pixels, a stack of blocks like FLUX.1's at 4,608 tokens, or
one of them in miniature. `--device cpu` checks the steps without a GPU: nothing is timed there. Only `graph`
needs the `bench` extra.
"""

__all__ = [
    "GRAPH",
    "RANGES",
    "config_of",
    "feed_of",
    "judged",
    "main",
    "net_of",
    "options",
    "record",
    "references",
]

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import quantrt
from benchmarks.cuda.timing import commit, enqueued, environment, time_in_turns
from benchmarks.nets.diffusion import NETS, Network
from benchmarks.nets.sdxl_graph import DATA, export_graph, write_weights
from benchmarks.nets.sdxl_unet import drawn
from benchmarks.peers.diffusion import TORCHAO, compiled, halves, in_codes
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.stats import load_stats, save_stats
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    CudaConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.ir.atomic import replace_file
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.prepare import Event
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.reference.metrics import Error
from quantrt.runtime.peak_memory import peak_memory

BATCH = 2
JUDGED = 10
"""Inputs that outputs are compared on, at steps from the first to the last."""

GRAPH, RANGES = "unet.onnx", "unet.ranges"

TAPPED_MB = 32 << 10
"""Room for all activations of one sample at once: the model runs whole."""


def main(arguments: Sequence[str] | None = None) -> None:
    steps = {
        "graph": _graph,
        "weights": _weights,
        "ranges": _ranges,
        "build": _build_all,
        "time": _time,
        "peer": _peer,
    }
    parser = argparse.ArgumentParser(description="The UNet of SDXL at every quantization level.")
    parser.add_argument("step", choices=steps)
    options(parser)
    parser.add_argument("--no-peer", action="store_true", help="of time: skip torch.compile")
    parser.add_argument("--torchao", choices=TORCHAO, help="of peer: its linear layers in 8 bits by torchao")
    parser.add_argument("--tune", action="store_true", help="of torchao: search for launches of all kernels")
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    steps[args.step](args)


def options(parser: argparse.ArgumentParser) -> None:
    """Add what all steps share."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("engines", nargs="*", metavar="PRECISION[@LEVEL]", help="of builds")
    parser.add_argument("--latents", help="height x width; of SDXL 96x168 is an image of 768x1344")
    parser.add_argument("--net", choices=NETS, default="sdxl", help="default: sdxl")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    parser.add_argument("--device-memory", type=int, metavar="MB", help="of build: take no more of the GPU")


def network_of(args: argparse.Namespace) -> Network:
    """What is measured."""
    return NETS[args.net]


def net_of(args: argparse.Namespace) -> torch.nn.Module:
    """It, with weights."""
    return drawn(network_of(args).empty(*_shape(args)), args.device)


def _shape(args: argparse.Namespace) -> tuple[int, int]:
    height, width = map(int, args.latents.split("x")) if args.latents else network_of(args).shape
    return height, width


def _graph(args: argparse.Namespace) -> None:
    """Write the graph without weights."""
    began = time.perf_counter()
    net, path = network_of(args), args.folder / GRAPH
    export_graph(net.empty(*_shape(args)), net.inputs(BATCH, *_shape(args)), path)
    record(args, "graph", {"export_s": time.perf_counter() - began, "bytes": path.stat().st_size})


def _weights(args: argparse.Namespace) -> None:
    """Draw the weights on the device, and write them beside the graph."""
    began = time.perf_counter()
    net = net_of(args)
    drawn = time.perf_counter()
    write_weights(net, args.folder / GRAPH)
    facts = {
        "draw_s": drawn - began,
        "write_s": time.perf_counter() - drawn,
        "bytes": (args.folder / DATA).stat().st_size,
        "peak_memory": peak_memory(),
    }
    record(args, "weights", facts)


def _ranges(args: argparse.Namespace) -> None:
    """Observe, on one sample, everything that any level quantizes."""
    began = time.perf_counter()
    model = load_model(args.folder / GRAPH)
    loaded = time.perf_counter()
    model, targets = (for_gpu(model), (CUDA, CUDA_FP8)) if args.device == "cuda" else (model, TARGETS)
    wanted = (QuantizeConfig(), QuantizeConfig(quantization_level="4"))
    names = sorted({name for config in wanted for name in observed_values(model, targets, config)})
    sample = [{name: x[:1] for name, x in feed_of(args).items()}]
    config = CalibrationConfig(batch_size=1, memory_mb=TAPPED_MB)
    save_stats(collect(model, names, open_dataset(sample, model.inputs), config), args.folder / RANGES)
    facts = {
        "load_s": loaded - began,
        "calibrate_s": time.perf_counter() - loaded,
        "tensors": len(names),
        "peak_memory": peak_memory(),
    }
    record(args, "ranges", facts)


def _build_all(args: argparse.Namespace) -> None:
    began = time.perf_counter()
    model = load_model(args.folder / GRAPH)
    print(f"loaded in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    for name in args.engines:
        try:
            record(args, f"build {name}", _build(args, name, model))
        except quantrt.QuantRtError as error:
            record(args, f"build {name}", {"error": str(error)})


def config_of(args: argparse.Namespace, name: str) -> BuildConfig:
    """How an engine is built: PRECISION, or PRECISION@LEVEL."""
    precision, _, level = name.partition("@")
    floats = {"fp32", "fp16"} if args.device == "cuda" else {"fp32"}
    cache = str(args.folder / "timings.json") if args.device == "cuda" else None
    cuda = CudaConfig(
        builder_optimization_level=args.level, timing_cache=cache, device_memory_mb=args.device_memory
    )
    return BuildConfig(
        precisions=frozenset({*floats, precision}),
        device=DeviceConfig(device=args.device),
        cuda=cuda,
        calibration=CalibrationConfig(method="minmax"),
        quantize=QuantizeConfig(quantization_level=level or "auto"),
        budget=Budget(metric="sqnr", max_drop_ratio=1.0),
        assign=AssignConfig(mixed=False),
        bench=BenchConfig(batch=BATCH, duration_s=1.0, max_duration_s=5.0),
    )


def _build(args: argparse.Namespace, name: str, model: Model) -> dict[str, Any]:
    config = config_of(args, name)
    stats = load_stats(args.folder / RANGES) if config.code_precisions else None
    clock = _StageClock(name)
    began = time.perf_counter()
    engine = quantrt.build(model, config=config, stats=stats, on_event=clock)
    build_s = time.perf_counter() - began
    path = args.folder / f"{name}.qrt"
    with engine:
        engine.save(path)
        layers = [row.precision for row in engine.plan.layers]
        return {
            "ships": engine.precision,
            "build_s": build_s,
            "save_s": time.perf_counter() - began - build_s,
            "stages_s": clock.stages_s,
            "device_peaks": clock.device_peaks,
            "engine_bytes": path.stat().st_size,
            "layers": {kind: layers.count(kind) for kind in sorted(set(layers))},
            "peak_memory": peak_memory(),
            "candidates": [
                {**{key: row.get(key) for key in ("name", "status", "reason")}, "median_ms": _median_ms(row)}
                for row in engine.report["candidates"]
            ],
            "notes": list(engine.report["notes"]),
        }


def _median_ms(row: Mapping[str, Any]) -> float | None:
    """Of one run of a candidate; None where it was not timed to the end."""
    latency = row.get("latency")
    return None if latency is None else latency["median_ms"]


class _StageClock:
    """Seconds by stage of a build: what passed since the event before, when a stage tells of its progress.

    Beside them the most bytes of the GPU that were taken at a time until the stage last told.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._last = time.perf_counter()
        self.stages_s: dict[str, float] = {}
        self.device_peaks: dict[str, int | None] = {}

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        is_over = event.total is not None and event.done >= event.total
        self.stages_s[event.stage] = self.stages_s.get(event.stage, 0.0) + now - self._last
        self._last = now
        self.device_peaks[event.stage] = peak_memory()["device_bytes"]
        if is_over:
            text = f"{now - self._began:6.1f} s {self._name}: {event.stage} {event.done} {event.unit}"
            print(text, file=sys.stderr, flush=True)


def _time(args: argparse.Namespace) -> None:
    """Load every engine of the folder, compare its outputs with float32, and time all of them in turns."""
    net = net_of(args)
    feed = feed_of(args)
    inputs_judged = judged(args)
    wanted = references(net, inputs_judged, args.device)
    runs: dict[str, Callable[[], object]] = {}
    engines = []
    for path in sorted(args.folder.glob("*.qrt")):
        began = time.perf_counter()
        engine = quantrt.load(path)
        facts: dict[str, Any] = {"load_s": time.perf_counter() - began}
        error = Error()
        for inputs, want in zip(inputs_judged, wanted, strict=True):
            error.add(want, engine.run(inputs)["out_sample"])
        facts["sqnr_db"] = float(-10 * np.log10(max(error.noise_ratio, 1e-30)))
        engines.append(engine)
        if args.device == "cuda":
            runs[path.stem] = enqueued(engine.executor, feed)
        record(args, f"engine {path.stem}", facts)
    if args.device != "cuda":
        return
    record(args, "ms", time_in_turns(runs))
    if not args.no_peer:
        runs["torch.compile fp16"] = compiled(*halves(net, feed))
        record(args, "ms", time_in_turns(runs))
    for engine in engines:
        engine.close()


def _peer(args: argparse.Namespace) -> None:
    """Compile the network with torch, and time it alone."""
    if args.device != "cuda":
        raise SystemExit("torch.compile is timed on a GPU")
    half, inputs = halves(net_of(args), feed_of(args))
    began = time.perf_counter()
    facts: dict[str, Any] = {}
    if args.torchao is not None:
        facts["layers"] = in_codes(half, inputs, args.torchao, tunes=args.tune)
    runs = {"torch.compile fp16": compiled(half, inputs)}
    facts |= {"compile_s": time.perf_counter() - began, "ms": time_in_turns(runs)}
    key = "peer" if args.torchao is None else f"torchao {args.torchao}{' tuned' if args.tune else ''}"
    record(args, key, facts, file="PEER.json")


def feed_of(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """The inputs that are timed."""
    return {name: x.numpy() for name, x in network_of(args).inputs(BATCH, *_shape(args)).items()}


def judged(args: argparse.Namespace) -> list[dict[str, np.ndarray]]:
    """JUDGED inputs of one sample each, of a UNet at steps from 999 to 1."""
    rows = {name: x.numpy() for name, x in network_of(args).inputs(JUDGED, *_shape(args)).items()}
    if "timestep" in rows:
        rows["timestep"] = np.linspace(999.0, 1.0, JUDGED, dtype=np.float32)
    return [{name: x[row : row + 1] for name, x in rows.items()} for row in range(JUDGED)]


def references(
    net: torch.nn.Module, batches: Sequence[Mapping[str, np.ndarray]], device: str
) -> list[np.ndarray]:
    """What torch makes of each in float32, without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.inference_mode():
        return [
            net(**{name: torch.from_numpy(x).to(device) for name, x in inputs.items()}).cpu().numpy()
            for inputs in batches
        ]


def record(args: argparse.Namespace, key: str, facts: dict[str, Any], file: str = "RESULTS.json") -> None:
    """Add a row to a file of results, and print it."""
    path = args.folder / file
    results = json.loads(path.read_text()) if path.exists() else {}
    if torch.cuda.is_available():
        results["environment"] = environment()
    results[key] = {**facts, "commit": commit(), "latents": list(_shape(args))}
    with replace_file(path) as written:
        written.write((json.dumps(results, indent=1) + "\n").encode())
    print(json.dumps({key: results[key]}, indent=1), flush=True)


if __name__ == "__main__":
    main()
