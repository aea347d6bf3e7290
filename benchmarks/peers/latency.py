# SPDX-License-Identifier: Apache-2.0
"""The peers of `benchmarks.latency`, each ready to run one input."""

__all__ = ["CALIBRATION_SAMPLES", "CALIBRATION_SEED", "OpenPeer", "open_peers"]

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.peers import (
    Precision,
    Runner,
    nncf_int8,
    open_openvino,
    open_ort,
    ort_int8,
    ort_int8_u8s8,
)
from benchmarks.tasks.inputs import Feed, make_inputs

CALIBRATION_SAMPLES = 32
CALIBRATION_SEED = 1000
ATTENTION_MODELS = ("vit_small_patch16_224", "efficientvit_b1", "all-MiniLM-L6-v2")

Quantize = Callable[[Path, Path, list[Feed]], None]


@dataclass(frozen=True)
class OpenPeer:
    """A loaded peer with its input.

    Attributes:
        run: one run, for timing.
        outputs: one run, outputs by name.
        is_fp32: neither quantized nor bf16.
    """

    run: Callable[[], object]
    outputs: Callable[[], dict[str, Any]]
    is_fp32: bool


@dataclass(frozen=True, kw_only=True)
class _Peer:
    """One column: the file it runs (the model's name and a suffix) and how that file is loaded."""

    name: str
    suffix: str
    open: Callable[[Path, Feed], Runner]
    quantize: Quantize | None = None


def open_peers(path: Path, feed: Feed) -> dict[str, OpenPeer]:
    """Every peer of the model at `path`, quantized now unless an earlier run kept the file."""
    opened = {}
    for peer in _peers(path.stem):
        runner = peer.open(_file_of(peer, path), feed)
        run = partial(runner.run, feed)
        opened[peer.name] = OpenPeer(run, run, peer.quantize is None)
    return opened


def _peers(model: str) -> Iterator[_Peer]:
    yield _Peer(name="ort fp32", suffix=".onnx", open=_ort)
    yield _Peer(name="ort int8 default", suffix=".ort_s8s8.onnx", open=_ort, quantize=ort_int8)
    yield _Peer(name="ort int8 u8s8", suffix=".ort_u8s8.onnx", open=_ort, quantize=ort_int8_u8s8)
    yield from _openvino("openvino fp32", ".onnx", None, ("f32",))
    yield from _openvino("nncf int8", ".nncf.xml", nncf_int8, (None, "f32"))
    if model in ATTENTION_MODELS:
        quantize = partial(nncf_int8, is_transformer=True)
        yield from _openvino("nncf int8 transformer", ".nncf_transformer.xml", quantize, (None, "f32"))


def _openvino(
    name: str, suffix: str, quantize: Quantize | None, precisions: tuple[Precision | None, ...]
) -> Iterator[_Peer]:
    """As the file is, and reshaped to the input's static shapes; with OpenVINO's own float type and f32."""
    for precision in precisions:
        label = name if quantize is None else f"{name} {precision or 'default'}"
        dynamic = partial(_open, precision, False)
        static = partial(_open, precision, True)
        yield _Peer(name=label, suffix=suffix, open=dynamic, quantize=quantize)
        yield _Peer(name=f"{label} static", suffix=suffix, open=static, quantize=quantize)


def _ort(path: Path, feed: Feed) -> Runner:
    return open_ort(path)


def _open(precision: Precision | None, is_static: bool, path: Path, feed: Feed) -> Runner:
    shapes = {name: value.shape for name, value in feed.items()} if is_static else None
    return open_openvino(path, precision, shapes=shapes)


def _file_of(peer: _Peer, model: Path) -> Path:
    """The file a peer runs, made now unless an earlier run made it from this model."""
    if peer.quantize is None:
        return model
    path = model.parent / "quantized" / f"{model.stem}{peer.suffix}"
    if not path.exists() or path.stat().st_mtime < model.stat().st_mtime:
        path.parent.mkdir(exist_ok=True)
        seeds = range(CALIBRATION_SEED, CALIBRATION_SEED + CALIBRATION_SAMPLES)
        peer.quantize(model, path, [make_inputs(model.stem, 1, seed) for seed in seeds])
    return path
