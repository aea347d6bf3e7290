# SPDX-License-Identifier: Apache-2.0
"""Times the peers on the benchmark models: `python -m benchmarks.peer_latency MODELS OUT.json [NAME ...]`.

MODELS is the folder that `benchmarks.models` filled; quantized files are kept in its subfolder quantized/.
Every figure is the median of single requests. All peers of one model and batch are loaded together and timed
in interleaved rounds, in a new order each round, so that a slow spell of the machine meets all of them alike.
A second run into the same OUT.json adds its models.
"""

__all__ = ["CALIBRATION_SAMPLES", "CALIBRATION_SEED", "Peer", "file_of", "measure_model"]

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.peers import Runner, nncf_int8, open_openvino, open_ort, ort_int8, ort_int8_u8s8
from benchmarks.tasks.inputs import MODEL_NAMES, Feed, make_inputs

BATCHES = (1, 8)
CALIBRATION_SAMPLES = 32
CALIBRATION_SEED = 1000
ATTENTION_MODELS = ("vit_small_patch16_224", "efficientvit_b1", "all-MiniLM-L6-v2")
TIME_PER_BATCH_S = 25.0
MIN_ROUNDS, MAX_ROUNDS = 9, 100
WARMUP_RUNS = 3
PACKAGES = ("onnxruntime", "openvino", "nncf", "numpy")

Quantize = Callable[[Path, Path, list[Feed]], None]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One column: the file it runs (the model's name and a suffix) and how that file is loaded."""

    name: str
    suffix: str
    open: Callable[[Path, Feed], Runner]
    quantize: Quantize | None = None


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time ONNX Runtime, OpenVINO and NNCF on the benchmark models."
    )
    parser.add_argument("models", type=Path, help="folder with the exported models")
    parser.add_argument("results", type=Path, help="JSON file to write or to add to")
    parser.add_argument("names", nargs="*", default=MODEL_NAMES, metavar="NAME", help="default: all models")
    args = parser.parse_args()
    results: dict[str, Any] = {"environment": _environment(), "unit": "ms, median", "models": {}}
    if args.results.exists():
        earlier = json.loads(args.results.read_text())
        if earlier["environment"] == results["environment"]:
            results = earlier
    for name in args.names:
        rows = measure_model(args.models / f"{name}.onnx")
        results["models"][name] = {"commit": _commit(), "rows": rows}
        _write(args.results, results)
        for row in rows:
            print(f"{name:24} {row['peer']:26} batch {row['batch']}: {row['latency_ms']:8.2f} ms")


def measure_model(path: Path) -> list[dict[str, Any]]:
    """Rows (peer, batch, latency_ms, p20_ms, p80_ms, rounds, size_bytes, config) of one model file."""
    rows = []
    for batch in BATCHES:
        feed = make_inputs(path.stem, batch, seed=batch)
        peers = _peers(path.stem, batch)
        files = {peer.name: file_of(peer, path) for peer in peers}
        runners = {peer.name: peer.open(files[peer.name], feed) for peer in peers}
        for name, times_ms in _time_interleaved(runners, feed).items():
            rows.append(
                {
                    "peer": name,
                    "batch": batch,
                    "latency_ms": statistics.median(times_ms),
                    "p20_ms": statistics.quantiles(times_ms, n=5)[0],
                    "p80_ms": statistics.quantiles(times_ms, n=5)[-1],
                    "rounds": len(times_ms),
                    "size_bytes": _size_bytes(files[name]),
                    "config": runners[name].config,
                }
            )
    return rows


def _peers(model: str, batch: int) -> list[Peer]:
    peers = [
        Peer(name="ort fp32", suffix=".onnx", open=_ort),
        Peer(name="ort int8 (defaults)", suffix=".ort_s8s8.onnx", open=_ort, quantize=ort_int8),
        Peer(name="ort int8 u8s8", suffix=".ort_u8s8.onnx", open=_ort, quantize=ort_int8_u8s8),
    ]
    peers += _openvino_peers("openvino", ".onnx", None, batch)
    peers += _openvino_peers("nncf int8", ".nncf.xml", nncf_int8, batch)
    if model in ATTENTION_MODELS:
        quantize = partial(nncf_int8, is_transformer=True)
        peers += _openvino_peers("nncf int8 transformer", ".nncf_transformer.xml", quantize, batch)
    return peers


def _openvino_peers(name: str, suffix: str, quantize: Quantize | None, batch: int) -> list[Peer]:
    """The same file with f32 forced and with bf16 asked for; above batch 1 also reshaped to static shapes."""

    def peer(detail: str, opener: Callable[[Path, Feed], Runner]) -> Peer:
        return Peer(name=f"{name} {detail}", suffix=suffix, open=opener, quantize=quantize)

    peers = [
        peer("f32", lambda path, feed: open_openvino(path, "f32")),
        peer("bf16", lambda path, feed: open_openvino(path, "bf16")),
    ]
    if batch > 1:
        peers.append(peer("f32 static", lambda path, feed: open_openvino(path, "f32", shapes=_shapes(feed))))
    return peers


def _ort(path: Path, feed: Feed) -> Runner:
    return open_ort(path)


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in feed.items()}


def file_of(peer: Peer, model: Path) -> Path:
    """The file a peer runs, made now unless an earlier run made it from this model."""
    if peer.quantize is None:
        return model
    path = model.parent / "quantized" / f"{model.stem}{peer.suffix}"
    if not path.exists() or path.stat().st_mtime < model.stat().st_mtime:
        path.parent.mkdir(exist_ok=True)
        seeds = range(CALIBRATION_SEED, CALIBRATION_SEED + CALIBRATION_SAMPLES)
        peer.quantize(model, path, [make_inputs(model.stem, 1, seed) for seed in seeds])
    return path


def _time_interleaved(runners: dict[str, Runner], feed: Feed) -> dict[str, list[float]]:
    """Latencies in ms by runner; as many rounds as TIME_PER_BATCH_S allows, after WARMUP_RUNS each."""
    for runner in runners.values():
        for _ in range(WARMUP_RUNS):
            runner.run(feed)
    times_ms: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    shuffle = random.Random(0).shuffle
    start = time.perf_counter()
    for index in range(MAX_ROUNDS):
        if index >= MIN_ROUNDS and time.perf_counter() - start > TIME_PER_BATCH_S:
            break
        shuffle(order)
        for name in order:
            runners[name].run(feed)  # brings its weights back into the cache after its predecessor's
            begin = time.perf_counter()
            runners[name].run(feed)
            times_ms[name].append((time.perf_counter() - begin) * 1e3)
    return times_ms


def _size_bytes(path: Path) -> int:
    """Size of a model file; an OpenVINO IR is the .xml and its .bin."""
    weights = path.with_suffix(".bin")
    return path.stat().st_size + (weights.stat().st_size if path.suffix == ".xml" else 0)


def _environment() -> dict[str, Any]:
    cpu_info = Path("/proc/cpuinfo").read_text()
    flags = next(line for line in cpu_info.splitlines() if line.startswith("flags")).split()
    return {
        "cpu": next(line for line in cpu_info.splitlines() if line.startswith("model name")).split(": ")[1],
        "cores": len(os.sched_getaffinity(0)),
        "isa": sorted(set(flags) & {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"}),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write(path: Path, results: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(results, indent=1) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    main()
