# SPDX-License-Identifier: Apache-2.0
"""Pipelines of diffusers at reduced width, with seeded weights: every kind of layer, none of the size."""

import json
import string
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    EulerDiscreteScheduler,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

NOISE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
BLOCKS = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "norm_num_groups": 8,
}


def stable_diffusion(folder: Path) -> StableDiffusionPipeline:
    torch.manual_seed(0)
    return StableDiffusionPipeline(
        unet=unet_sd(),
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config()).eval(),
        tokenizer=_tokenizer(folder),
        scheduler=DDIMScheduler(**NOISE, clip_sample=False, set_alpha_to_one=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl(folder: Path) -> StableDiffusionXLPipeline:
    torch.manual_seed(0)
    return StableDiffusionXLPipeline(
        unet=unet_sdxl(),
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config()).eval(),
        text_encoder_2=CLIPTextModelWithProjection(_text_config()).eval(),
        tokenizer=_tokenizer(folder),
        tokenizer_2=_tokenizer(folder),
        scheduler=EulerDiscreteScheduler(**NOISE, timestep_spacing="leading"),
        add_watermarker=False,
    )


def unet_sd() -> UNet2DConditionModel:
    torch.manual_seed(0)
    return UNet2DConditionModel(**BLOCKS, cross_attention_dim=32, attention_head_dim=2).eval()


def unet_sdxl() -> UNet2DConditionModel:
    torch.manual_seed(0)
    return UNet2DConditionModel(
        **BLOCKS,
        cross_attention_dim=64,
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
    ).eval()


def transformer_sd3() -> SD3Transformer2DModel:
    torch.manual_seed(0)
    return SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    ).eval()


def transformer_flux() -> FluxTransformer2DModel:
    torch.manual_seed(0)
    return FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).eval()


def _vae() -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    ).eval()


def _text_config() -> CLIPTextConfig:
    return CLIPTextConfig(
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        vocab_size=1000,
        projection_dim=32,
        bos_token_id=52,
        eos_token_id=53,
    )


def _tokenizer(folder: Path) -> CLIPTokenizer:
    """Letters, and letters that end a word; no merges."""
    letters = [*string.ascii_lowercase, *(f"{letter}</w>" for letter in string.ascii_lowercase)]
    words = {word: number for number, word in enumerate((*letters, "<|startoftext|>", "<|endoftext|>"))}
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(
        str(folder / "vocab.json"),
        str(folder / "merges.txt"),
        unk_token="<|endoftext|>",
        model_max_length=77,
    )
