# SPDX-License-Identifier: Apache-2.0
"""Detection, segmentation, depth and masks by prompts, by torchvision and transformers."""

__all__ = ["SCENES"]

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models import declare_torchvision_ops
from benchmarks.zoo_case import BOTH, DYNAMO, TORCHSCRIPT, Case, Feed, pictures
from benchmarks.zoo_transformers import called

if TYPE_CHECKING:
    import torch

CLASSES = 8
FREE = {"images": {0: "batch"}}
WIDE = (32, 64, 96, 128)
SWIN: dict[str, Any] = {
    "image_size": 128,
    "embed_dim": 32,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 2, 4, 4],
    "window_size": 4,
}
STAGES = ["stage1", "stage2", "stage3", "stage4"]


def _segmenter(name: str) -> "torch.nn.Module":
    """One of torchvision's; it gives a dict."""
    import torch

    declare_torchvision_ops()
    import torchvision

    made = getattr(torchvision.models.segmentation, name)(
        weights=None, weights_backbone=None, num_classes=CLASSES
    )

    class Segmenter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, images: Any) -> Any:
            return self.model(images)["out"]

    return Segmenter()


def _detector(name: str, **options: Any) -> "torch.nn.Module":
    """One of torchvision's, before boxes are chosen: maps, anchors and heads, one tensor each."""
    import torch

    declare_torchvision_ops()
    import torchvision

    made = getattr(torchvision.models.detection, name)(
        weights=None, weights_backbone=None, num_classes=CLASSES, **options
    )

    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, images: Any) -> Any:
            maps = list(self.model.backbone(images).values())
            return tuple(self.model.head(maps).values())

    return Heads()


def _vision(
    name: str,
    model: str,
    config: Callable[[], dict[str, Any]],
    size: int,
    picks: tuple[str, ...],
    *,
    exporters: tuple[str, ...] = (DYNAMO,),
    folds: bool = True,
    is_free: bool = True,
    batch: int = 2,
) -> Case:
    return Case(
        name,
        "scenes",
        partial(_called_late, model, config, picks),
        pictures(size, batch),
        FREE if is_free else {},
        exporters,
        folds,
    )


def _called_late(
    model: str, config: Callable[[], dict[str, Any]], picks: tuple[str, ...]
) -> "torch.nn.Module":
    return called(
        model,
        f"{model.rsplit('For', 1)[0].removesuffix('Model')}Config",
        ("pixel_values",),
        picks,
        **config(),
    )


def _backbone(kind: str, **sizes: Any) -> Any:
    declare_torchvision_ops()
    import transformers

    return getattr(transformers, f"{kind}Config")(**sizes)


def _resnet(kind: str, stages: list[str]) -> Any:
    return _backbone(
        kind,
        embedding_size=32,
        hidden_sizes=list(WIDE),
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=stages,
    )


def _detr() -> dict[str, Any]:
    layers = {
        f"{part}_{what}": n
        for part in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 256))
    }
    return {
        "backbone_config": _resnet("ResNet", STAGES[3:]),
        "backbone": None,
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "d_model": 128,
        "num_queries": 20,
        "num_labels": CLASSES,
        **layers,
    }


def _rt_detr() -> dict[str, Any]:
    return {
        "backbone_config": _resnet("RTDetrResNet", STAGES[1:]),
        "encoder_hidden_dim": 64,
        "encoder_in_channels": list(WIDE[1:]),
        "encoder_ffn_dim": 128,
        "d_model": 64,
        "num_queries": 30,
        "decoder_in_channels": [64, 64, 64],
        "decoder_ffn_dim": 128,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "encoder_attention_heads": 4,
        "num_labels": CLASSES,
    }


def _mask2former() -> dict[str, Any]:
    return {
        "backbone_config": _backbone("Swin", **SWIN, out_features=STAGES),
        "feature_size": 64,
        "mask_feature_size": 64,
        "hidden_dim": 64,
        "encoder_feedforward_dim": 128,
        "dim_feedforward": 128,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "num_attention_heads": 4,
        "num_queries": 20,
        "num_labels": CLASSES,
    }


def _upernet() -> dict[str, Any]:
    return {
        "backbone_config": _backbone(
            "ConvNext", hidden_sizes=list(WIDE), depths=[1, 1, 1, 1], out_features=STAGES
        ),
        "hidden_size": 64,
        "num_labels": CLASSES,
        "use_auxiliary_head": False,
        "auxiliary_in_channels": 96,
    }


def _dpt() -> dict[str, Any]:
    return {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "image_size": 128,
        "patch_size": 16,
        "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": list(WIDE),
        "fusion_hidden_size": 64,
        "is_hybrid": False,
    }


def _depth_anything() -> dict[str, Any]:
    backbone = _backbone(
        "Dinov2",
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=126,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        apply_layernorm=True,
        reshape_hidden_states=False,
    )
    return {
        "backbone_config": backbone,
        "reassemble_hidden_size": 128,
        "patch_size": 14,
        "neck_hidden_sizes": list(WIDE),
        "fusion_hidden_size": 64,
        "head_hidden_size": 32,
    }


def _segformer() -> dict[str, Any]:
    return {
        "hidden_sizes": [32, 64, 96, 128],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 3, 4],
        "decoder_hidden_size": 128,
        "num_labels": CLASSES,
    }


def _yolos() -> dict[str, Any]:
    return {
        "hidden_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 768,
        "image_size": [128, 128],
        "patch_size": 16,
        "num_detection_tokens": 20,
        "num_labels": CLASSES,
    }


def _swin2sr() -> dict[str, Any]:
    return {
        "image_size": 32,
        "embed_dim": 64,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 8,
        "upscale": 2,
    }


SAM: dict[str, Any] = {
    "vision_config": {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 256,
        "patch_size": 16,
        "output_channels": 64,
        "window_size": 7,
        "global_attn_indexes": [2],
        "mlp_dim": 256,
        "num_pos_feats": 32,
    },
    "prompt_encoder_config": {
        "hidden_size": 64,
        "image_size": 256,
        "patch_size": 16,
        "mask_input_channels": 8,
    },
    "mask_decoder_config": {
        "hidden_size": 64,
        "mlp_dim": 128,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 64,
    },
}


def _prompted(seed: int) -> Feed:
    """What SAM's encoder gives, and two points with what they are."""
    rng = np.random.default_rng(seed)
    return {
        "image_embeddings": rng.standard_normal((2, 64, 16, 16), np.float32),
        "input_points": (256 * rng.random((2, 1, 2, 2), np.float32)).astype(np.float32),
        "input_labels": rng.integers(0, 2, (2, 1, 2)),
    }


SCENES = (
    Case("ssd-heads", "scenes", partial(_detector, "ssd300_vgg16"), pictures(300, 1), {}, BOTH, folds=False),
    Case(
        "retinanet-heads",
        "scenes",
        partial(_detector, "retinanet_resnet50_fpn_v2"),
        pictures(96, 1),
        {},
        (TORCHSCRIPT,),
        folds=False,
    ),
    Case(
        "fcos-heads",
        "scenes",
        partial(_detector, "fcos_resnet50_fpn"),
        pictures(96, 1),
        {},
        (TORCHSCRIPT,),
        folds=False,
    ),
    Case(
        "deeplabv3",
        "scenes",
        partial(_segmenter, "deeplabv3_mobilenet_v3_large"),
        pictures(128, 2),
        FREE,
        (TORCHSCRIPT,),
        folds=False,
    ),
    Case(
        "lraspp",
        "scenes",
        partial(_segmenter, "lraspp_mobilenet_v3_large"),
        pictures(128, 2),
        FREE,
        BOTH,
        folds=False,
    ),
    _vision("detr", "DetrForObjectDetection", _detr, 128, ("logits", "pred_boxes"), folds=False),
    _vision(
        "rt_detr",
        "RTDetrForObjectDetection",
        _rt_detr,
        128,
        ("logits", "pred_boxes"),
        exporters=BOTH,
        folds=False,
        is_free=False,
    ),
    _vision("yolos", "YolosForObjectDetection", _yolos, 128, ("logits", "pred_boxes"), exporters=BOTH),
    _vision("segformer", "SegformerForSemanticSegmentation", _segformer, 128, ("logits",), folds=False),
    _vision(
        "mask2former",
        "Mask2FormerForUniversalSegmentation",
        _mask2former,
        128,
        ("class_queries_logits", "masks_queries_logits"),
        exporters=(TORCHSCRIPT,),
        is_free=False,
        folds=False,
        batch=1,
    ),
    _vision("upernet", "UperNetForSemanticSegmentation", _upernet, 128, ("logits",), folds=False),
    _vision("dpt", "DPTForDepthEstimation", _dpt, 128, ("predicted_depth",), folds=False),
    _vision("depth_anything", "DepthAnythingForDepthEstimation", _depth_anything, 126, ("predicted_depth",)),
    _vision("swin2sr", "Swin2SRForImageSuperResolution", _swin2sr, 32, ("reconstruction",), exporters=BOTH),
    Case(
        "sam-encoder",
        "scenes",
        partial(
            called,
            "SamModel",
            "SamConfig",
            ("pixel_values",),
            ("last_hidden_state",),
            "vision_encoder",
            **SAM,
        ),
        pictures(256, 1),
        {},
        (TORCHSCRIPT,),
    ),
    Case(
        "sam-decoder",
        "scenes",
        partial(
            called,
            "SamModel",
            "SamConfig",
            ("image_embeddings", "input_points", "input_labels"),
            ("iou_scores", "pred_masks"),
            **SAM,
        ),
        _prompted,
        {},
        BOTH,
    ),
)
