# SPDX-License-Identifier: Apache-2.0
"""Speech, music and sound, and models of two kinds of input, by transformers."""

__all__ = ["PAIRED", "SOUNDS"]

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.tasks.inputs import make_images
from benchmarks.zoo_case import BOTH, DYNAMO, TORCHSCRIPT, VOCABULARY, Case, Feed, tokens, waves
from benchmarks.zoo_transformers import ENCODER, HEADS, WIDTH, called

HEARD: dict[str, Any] = {
    **ENCODER,
    "vocab_size": 32,
    "num_hidden_layers": 2,
    "conv_dim": (64, 64, 64),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 40,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH,
    "d_model": WIDTH,
    "max_source_positions": 100,
    "max_target_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
TOWER: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
}
SEEN: dict[str, Any] = {**TOWER, "image_size": 112, "patch_size": 16}
READ: dict[str, Any] = {
    **TOWER,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "eos_token_id": VOCABULARY - 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
}
TWO: dict[str, Any] = {"text_config": READ, "vision_config": SEEN, "projection_dim": 64}
BATCH = {0: "batch"}


def _case(
    name: str,
    model: str,
    config: str,
    feed: Callable[[int], Feed],
    picks: tuple[str, ...],
    *,
    part: str = "",
    family: str = "sound",
    exporters: tuple[str, ...] = (DYNAMO,),
    free: dict[str, dict[int, str]] | None = None,
    folds: bool = True,
    **sizes: Any,
) -> Case:
    names = tuple(feed(0))
    given = dict.fromkeys(names, BATCH) if free is None else free
    return Case(
        name,
        family,
        partial(called, model, config, names, picks, part, **sizes),
        feed,
        given,
        exporters,
        folds,
    )


def _made_so_far(seed: int) -> Feed:
    """What Whisper's decoder reads: its tokens, and the encoder's states."""
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(5, VOCABULARY, (2, 16)),
        "encoder_hidden_states": rng.standard_normal((2, 100, WIDTH), np.float32),
    }


def _text_and_picture(seed: int, size: int = 112, length: int = 16) -> Feed:
    words = tokens(length, 2, VOCABULARY - 1)(seed)
    words["input_ids"][:, -1] = VOCABULARY - 1
    return {
        "input_ids": words["input_ids"],
        "pixel_values": make_images(2, size, seed),
        "attention_mask": np.ones_like(words["attention_mask"]),
    }


def _page(seed: int) -> Feed:
    """Words, where they stand, and the picture of the page."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 500, (2, 24, 2))
    return {
        **tokens(24, 2)(seed),
        "bbox": np.concatenate([corner, corner + rng.integers(1, 400, (2, 24, 2))], -1),
        "pixel_values": make_images(2, 112, seed),
    }


def _conformer() -> dict[str, Any]:
    return {**HEARD, "conv_depthwise_kernel_size": 15, "position_embeddings_type": "relative"}


HIDDEN = ("last_hidden_state",)
LOGITS = ("logits",)
CLIP_OUTPUTS = ("logits_per_image", "text_embeds", "image_embeds")

MOONSHINE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 2,
    "encoder_num_attention_heads": HEADS,
    "decoder_num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}

SOUNDS = (
    _case(
        "whisper-encoder",
        "WhisperModel",
        "WhisperConfig",
        waves((2, 40, 200), "input_features"),
        HIDDEN,
        part="encoder",
        exporters=BOTH,
        **WHISPER,
    ),
    _case(
        "whisper-decoder",
        "WhisperModel",
        "WhisperConfig",
        _made_so_far,
        HIDDEN,
        part="decoder",
        **{**WHISPER, "use_cache": False},
    ),
    _case(
        "wav2vec2",
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        waves((2, 4000)),
        LOGITS,
        exporters=BOTH,
        free={"input_values": {0: "batch", 1: "samples"}},
        **HEARD,
    ),
    _case(
        "hubert",
        "HubertModel",
        "HubertConfig",
        waves((2, 4000)),
        HIDDEN,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        conv_bias=True,
        **HEARD,
    ),
    _case(
        "wavlm",
        "WavLMModel",
        "WavLMConfig",
        waves((2, 4000)),
        HIDDEN,
        exporters=(TORCHSCRIPT,),
        free={},
        **HEARD,
    ),
    _case("sew", "SEWModel", "SEWConfig", waves((2, 4000)), HIDDEN, squeeze_factor=2, free={}, **HEARD),
    _case(
        "sew_d",
        "SEWDModel",
        "SEWDConfig",
        waves((2, 4000)),
        HIDDEN,
        squeeze_factor=2,
        free={},
        exporters=(TORCHSCRIPT,),
        **HEARD,
    ),
    _case(
        "conformer",
        "Wav2Vec2ConformerModel",
        "Wav2Vec2ConformerConfig",
        waves((2, 4000)),
        HIDDEN,
        free={},
        folds=False,
        exporters=(TORCHSCRIPT,),
        **_conformer(),
    ),
    _case(
        "wav2vec2_bert",
        "Wav2Vec2BertModel",
        "Wav2Vec2BertConfig",
        waves((2, 60, 160), "input_features"),
        HIDDEN,
        free={},
        exporters=(TORCHSCRIPT,),
        **{**ENCODER, "num_hidden_layers": 2},
        feature_projection_input_dim=160,
        conv_depthwise_kernel_size=15,
    ),
    _case(
        "ast",
        "ASTModel",
        "ASTConfig",
        waves((2, 128, 64), "input_values"),
        ("last_hidden_state", "pooler_output"),
        **TOWER,
        max_length=128,
        num_mel_bins=64,
        patch_size=16,
    ),
    _case(
        "moonshine",
        "MoonshineModel",
        "MoonshineConfig",
        waves((2, 4000)),
        HIDDEN,
        part="encoder",
        **MOONSHINE,
    ),
)

PAIRED = (
    _case(
        "clip",
        "CLIPModel",
        "CLIPConfig",
        _text_and_picture,
        CLIP_OUTPUTS,
        family="two kinds",
        exporters=BOTH,
        **TWO,
    ),
    _case(
        "siglip",
        "SiglipModel",
        "SiglipConfig",
        _text_and_picture,
        CLIP_OUTPUTS,
        family="two kinds",
        text_config=READ,
        vision_config=SEEN,
    ),
    _case(
        "blip",
        "BlipForImageTextRetrieval",
        "BlipConfig",
        _text_and_picture,
        ("itm_score",),
        family="two kinds",
        free={},
        exporters=(TORCHSCRIPT,),
        text_config={**READ, "encoder_hidden_size": WIDTH},
        vision_config=SEEN,
        image_text_hidden_size=64,
    ),
    _case(
        "layoutlmv3",
        "LayoutLMv3Model",
        "LayoutLMv3Config",
        _page,
        HIDDEN,
        family="two kinds",
        free={},
        exporters=(TORCHSCRIPT,),
        **ENCODER,
        input_size=112,
        patch_size=16,
        coordinate_size=32,
        shape_size=32,
        max_2d_position_embeddings=1024,
        max_position_embeddings=130,
    ),
    _case(
        "owlvit",
        "OwlViTModel",
        "OwlViTConfig",
        _text_and_picture,
        ("logits_per_image", "text_embeds", "image_embeds"),
        family="two kinds",
        free={},
        **TWO,
    ),
)
