# SPDX-License-Identifier: Apache-2.0
"""Architectures that people deploy on CPUs, at the sizes they have there, with the zoo's drawn weights."""

__all__ = ["DEPLOYED", "TRANSFORMERS"]

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.zoo_case import VOCABULARY, Case, Feed, pictures, tokens, waves
from benchmarks.zoo_pictures import timm_model
from benchmarks.zoo_transformers import called, stepped

if TYPE_CHECKING:
    import torch

FREE = {0: "batch"}
BATCH = 4

PICTURE_SIZE, DETECTOR_SIZE, MAP_SIZE = 224, 320, 128
SENTENCE, PAST = 128, 127
"""Tokens of a text; those that a decoder's next token follows."""

MELS, FRAMES = 80, 1000
"""Of ten seconds of sound, as Whisper hears them."""

BERT: dict[str, Any] = {"vocab_size": VOCABULARY, "attn_implementation": "eager"}
MINILM: dict[str, Any] = {
    **BERT,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": True,
}
"""DistilGPT-2, but for its vocabulary."""

WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": MELS,
    "d_model": 384,
    "encoder_layers": 4,
    "decoder_layers": 1,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "decoder_ffn_dim": 1536,
    "max_source_positions": FRAMES // 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
"""The encoder of its smallest size."""


def _picture(name: str, **options: Any) -> Case:
    make = partial(timm_model, name, **options)
    return Case(name, "pictures", make, pictures(PICTURE_SIZE, BATCH), {"images": FREE})


def _detector() -> "torch.nn.Module":
    from benchmarks.nets.detector import detector  # torch is optional

    return detector()


def _unet() -> "torch.nn.Module":
    from benchmarks.nets.unet import unet  # as above

    return unet()


def _words() -> "torch.nn.Module":
    from benchmarks.zoo_nets import NETS  # as above

    return NETS["quartznet"]()


def _encoder(name: str, model: str, config: str, **sizes: Any) -> Case:
    feed = tokens(SENTENCE, BATCH)
    make = partial(called, model, config, tuple(feed(0)), ("last_hidden_state",), **sizes)
    return Case(name, "text", make, feed, dict.fromkeys(feed(0), FREE))


def _step(seed: int) -> Feed:
    """One token behind PAST others."""
    rng = np.random.default_rng(seed)
    shape = (BATCH, GPT2["n_head"], PAST, GPT2["n_embd"] // GPT2["n_head"])
    names = [f"past_{kind}_{layer}" for layer in range(GPT2["n_layer"]) for kind in ("key", "value")]
    return {
        "input_ids": rng.integers(5, VOCABULARY, (BATCH, 1)),
        "attention_mask": np.ones((BATCH, PAST + 1), np.int64),
        **{name: rng.standard_normal(shape, np.float32) for name in names},
    }


PICTURES = (
    _picture("resnet50"),
    _picture("mobilenetv2_100"),
    _picture("mobilenetv3_large_100"),
    _picture("efficientnet_b0"),
    _picture("regnety_008"),
    _picture("densenet121"),
    _picture("convnext_tiny"),
    _picture("efficientvit_b1"),
    _picture("deit_small_patch16_224"),
    _picture("swin_tiny_patch4_window7_224"),
    Case("yolov8-s", "pictures", _detector, pictures(DETECTOR_SIZE, BATCH), {"images": FREE}),
    Case("unet", "pictures", _unet, pictures(MAP_SIZE, BATCH), {"images": FREE}),
)

TEXTS = (
    _encoder("bert-base", "BertModel", "BertConfig", **BERT),
    _encoder("distilbert", "DistilBertModel", "DistilBertConfig", **BERT),
    _encoder("minilm", "BertModel", "BertConfig", **MINILM),
    Case(
        "distilgpt2-step",
        "text",
        partial(stepped, "GPT2LMHeadModel", "GPT2Config", GPT2["n_layer"], **GPT2),
        _step,
        dict.fromkeys(_step(0), FREE),
    ),
)

SOUNDS = (
    Case(
        "whisper-tiny-encoder",
        "sound",
        partial(
            called,
            "WhisperModel",
            "WhisperConfig",
            ("input_features",),
            ("last_hidden_state",),
            "encoder",
            **WHISPER,
        ),
        waves((BATCH, MELS, FRAMES), "input_features"),
        {"input_features": FREE},
    ),
    Case("quartznet", "sound", _words, waves((BATCH, 64, 200), "features"), {"features": FREE}),
)

DEPLOYED = (*PICTURES, *TEXTS, *SOUNDS)

TRANSFORMERS = frozenset(
    {
        "efficientvit_b1",
        "deit_small_patch16_224",
        "swin_tiny_patch4_window7_224",
        *(case.name for case in TEXTS),
        "whisper-tiny-encoder",
    }
)
"""What some tools want to be told of: attention."""
