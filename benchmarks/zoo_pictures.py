# SPDX-License-Identifier: Apache-2.0
"""Classifiers of pictures, by timm: one of every way to mix pixels that it has."""

__all__ = ["PICTURES", "timm_model"]

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.models import declare_torchvision_ops
from benchmarks.zoo_case import BOTH, TORCHSCRIPT, Case, pictures

if TYPE_CHECKING:
    import torch

CLASSES = 100
FREE = {"images": {0: "batch"}}


def timm_model(name: str, **options: Any) -> "torch.nn.Module":
    """An architecture of timm for CLASSES classes, in operators that can be exported."""
    declare_torchvision_ops()
    import timm

    module: torch.nn.Module = timm.create_model(
        name, pretrained=False, num_classes=CLASSES, exportable=True, **options
    )
    return module


def _case(
    name: str,
    size: int = 128,
    *,
    exporters: tuple[str, ...] = (TORCHSCRIPT,),
    folds: bool = False,
    keep: tuple[str, ...] = (),
    is_free: bool = True,
    **options: Any,
) -> Case:
    return Case(
        name,
        "pictures",
        partial(timm_model, name, **options),
        pictures(size),
        FREE if is_free else {},
        exporters,
        folds,
        keep,
    )


CONVOLUTIONS = (
    _case("convnext_atto", folds=True, exporters=BOTH),
    _case("convnextv2_atto", folds=True),
    _case("regnety_004"),
    _case("densenet121", 64),
    _case("inception_v4", 128),
    _case("inception_next_atto"),
    _case("ghostnetv2_100"),
    _case("ghostnetv3_050"),
    _case("nfnet_l0"),
    _case("hrnet_w18_small", 128),
    _case("mnasnet_small"),
    _case("mobilenetv4_hybrid_medium", 128),
    _case("mobileone_s0"),
    _case("repvgg_a0"),
    _case("dla46x_c"),
    _case("dpn48b"),
    _case("res2net50_14w_8s", 64),
    _case("skresnet18"),
    _case("resnest14d"),
    _case("rexnet_100"),
    _case("ese_vovnet19b_slim_dw"),
    _case("xception41p", 96),
    _case("convmixer_768_32", 64),
    _case("fasternet_t0"),
    _case("edgenext_xx_small"),
    _case("mambaout_femto", folds=True),
    _case("focalnet_tiny_srf", 64, folds=True),
)
"""Mostly convolutions."""

ATTENTION = (
    _case("swin_tiny_patch4_window7_224", 112, folds=True, exporters=BOTH, img_size=112),
    _case("swinv2_tiny_window8_256", 128, folds=True, img_size=128),
    _case("swin_s3_tiny_224", 112, folds=True, img_size=112),
    _case("maxvit_nano_rw_256", 128, img_size=128),
    _case("coatnet_0_rw_224", 64, img_size=64),
    _case("coat_lite_tiny", 64, folds=True, img_size=64),
    _case("efficientformer_l1", 224),
    _case("efficientformerv2_s0", 224),
    _case("mobilevit_xxs"),
    _case("mobilevitv2_050"),
    _case("fastvit_sa12", 128),
    _case("levit_128s", 224),
    _case("xcit_nano_12_p16_224", 112, img_size=112),
    _case("beit_base_patch16_224", 112, folds=True, img_size=112, embed_dim=192, depth=4, num_heads=3),
    _case("eva02_tiny_patch14_224", 112, folds=True, img_size=112, depth=4),
    _case("vit_small_patch14_reg4_dinov2", 112, folds=True, img_size=112, depth=4, dynamic_img_size=True),
    _case("cait_xxs24_224", 112, folds=True, img_size=112, depth=6),
    _case("crossvit_9_240", 120, folds=True, img_size=120),
    _case("twins_svt_small", 64, folds=True, img_size=64),
    _case("pit_ti_224", 112, folds=True, img_size=112),
    _case("tnt_s_patch16_224", 64, folds=True, img_size=64, depth=4),
    _case("visformer_tiny", 128, img_size=128),
    _case("nest_tiny", 128, folds=True, img_size=128),
    _case("davit_tiny", 64, folds=True),
    _case("gcvit_xxtiny", 224),
    _case("mvitv2_tiny", 128, folds=True, img_size=128),
    _case("hiera_tiny_224", 224, folds=True),
    _case("nextvit_small", 64),
    _case("swiftformer_xs", 128),
    _case("convit_tiny", 112, folds=True, img_size=112),
    _case("botnet26t_256", 128, img_size=128),
    _case("lambda_resnet26t", 128, img_size=128),
)
"""With attention of some kind."""

MIXERS = (
    _case("mixer_s32_224", 224, folds=True),
    _case("resmlp_12_224", 112, folds=True, img_size=112),
    _case("gmlp_ti16_224", 112, folds=True, img_size=112),
    _case("poolformerv2_s12", 64),
)
"""Neither: products over positions, pools, and LSTMs over rows and columns."""

PICTURES = CONVOLUTIONS + ATTENTION + MIXERS
