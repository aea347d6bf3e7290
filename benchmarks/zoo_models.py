# SPDX-License-Identifier: Apache-2.0
"""Exports the zoo: `python -m benchmarks.zoo_models FOLDER [NAME ...]`.

A few dozen architectures of timm, torchvision, transformers, diffusers and torch itself, at modest sizes and
with seeded random weights, by one or both of torch's exporters. FOLDER gets a graph for each, without the
weights that `benchmarks.zoo_weights` draws again: a few MB in all, which `benchmarks.zoo` fills wherever it
runs. Needs what the models are of; `benchmarks.zoo` needs none of it.
"""

__all__ = ["CASES", "FEEDS", "export", "exported", "rows_of"]

import argparse
import inspect
import io
import lzma
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from benchmarks.zoo_case import DYNAMO, TORCHSCRIPT, Case, Feed
from benchmarks.zoo_others import OTHERS
from benchmarks.zoo_pictures import PICTURES
from benchmarks.zoo_scenes import SCENES
from benchmarks.zoo_sounds import PAIRED, SOUNDS
from benchmarks.zoo_texts import TEXTS
from benchmarks.zoo_weights import Draws, settle, without_weights

if TYPE_CHECKING:
    import torch

CASES: tuple[Case, ...] = (*PICTURES, *SCENES, *TEXTS, *SOUNDS, *PAIRED, *OTHERS)

SUFFIXES = {DYNAMO: "", TORCHSCRIPT: ".ts"}
FEEDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Export the zoo, without weights.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of them")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, (case, exporter) in rows_of(CASES).items():
        if args.names and name not in args.names:
            continue
        began = time.perf_counter()
        try:
            size, left = export(case, exporter, args.folder / f"{name}.onnx.xz")
        except Exception as error:  # noqa: BLE001 - exporters raise anything; what they refuse is no row
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})"
            print(f"{name}: not exported: {told}".replace("\n", " "), flush=True)
            continue
        seconds = time.perf_counter() - began
        print(f"{name}: {size / 1e3:.0f} kB, weights inside {left / 1e6:.2f} MB, {seconds:.0f} s", flush=True)


def rows_of(cases: tuple[Case, ...]) -> dict[str, tuple[Case, str]]:
    """Every case by every exporter that it has, by the names of rows."""
    return {
        f"{case.name}{SUFFIXES[exporter]}": (case, exporter) for case in cases for exporter in case.exporters
    }


def export(case: Case, exporter: str, path: Path) -> tuple[int, int]:
    """Write the graph of a case, compressed; its bytes, and those of large constants that are inside it."""
    model, draws = exported(case, exporter)
    left = without_weights(model, draws)
    data = lzma.compress(model.SerializeToString())
    path.write_bytes(data)
    return len(data), left


def exported(case: Case, exporter: str) -> tuple[onnx.ModelProto, Draws]:
    """A case as a model with its weights, and which of these are drawn."""
    import torch

    torch.manual_seed(0)
    module = case.module()
    feeds = [case.feed(seed) for seed in range(FEEDS)]
    draws = settle(module, feeds, case.keep)
    with torch.no_grad():
        made = module(*_tensors(feeds[0]))
    outputs = [f"output_{i}" for i in range(len(made))] if isinstance(made, tuple) else ["output"]
    make = _with_dynamo if exporter == DYNAMO else _with_torchscript
    model = make(case, module, feeds[0], outputs)
    for node in model.graph.node:
        del node.metadata_props[:]  # stack traces, most of the file
        node.doc_string = ""
    return model, draws


def _tensors(feed: Feed) -> tuple["torch.Tensor", ...]:
    import torch

    return tuple(torch.from_numpy(np.array(array)) for array in feed.values())


def _with_dynamo(case: Case, module: "torch.nn.Module", feed: Feed, outputs: list[str]) -> onnx.ModelProto:
    import torch

    free = [dict.fromkeys(case.free.get(name, {}), torch.export.Dim.DYNAMIC) or None for name in feed]
    named = [p for p in inspect.signature(module.forward).parameters.values() if p.kind != p.VAR_POSITIONAL]
    is_open = len(named) < len(free)  # the others are one argument, *arrays
    shapes = (*free[: len(named)], tuple(free[len(named) :])) if is_open else tuple(free)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            _tensors(feed),
            dynamo=True,
            input_names=list(feed),
            output_names=outputs,
            dynamic_shapes=shapes if any(free) else None,
            opset_version=case.opset,
            optimize=case.folds,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _with_torchscript(
    case: Case, module: "torch.nn.Module", feed: Feed, outputs: list[str]
) -> onnx.ModelProto:
    import torch

    file = io.BytesIO()
    modes = torch.onnx.TrainingMode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            _tensors(feed),
            file,  # type: ignore[arg-type]
            dynamo=False,
            input_names=list(feed),
            output_names=outputs,
            dynamic_axes={name: dict(axes) for name, axes in case.free.items()} or None,
            opset_version=min(case.opset, 18),
            training=modes.EVAL if case.folds else modes.PRESERVE,
            do_constant_folding=case.folds,
        )
    return onnx.load_from_string(file.getvalue())


if __name__ == "__main__":
    main()
