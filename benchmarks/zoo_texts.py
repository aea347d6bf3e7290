# SPDX-License-Identifier: Apache-2.0
"""Encoders and decoders of text, with and without the keys and values of earlier tokens."""

__all__ = ["TEXTS"]

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.zoo_case import BOTH, DYNAMO, TORCHSCRIPT, VOCABULARY, Case, Feed, tokens
from benchmarks.zoo_transformers import DECODER, ENCODER, HEADS, LAYERS, WIDTH, called, stepped

LENGTH = 64
UNPADDED = tokens(LENGTH, has_padding=False)
"""For windows of attention: a token of padding far from all others sees nothing, and is whatever it is."""

FREE = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}}
BOTH_INPUTS = ("input_ids", "attention_mask")
LAST = ("last_hidden_state",)


def _encoder(
    name: str,
    model: str,
    config: str,
    sizes: dict[str, Any] | None = None,
    *,
    exporters: tuple[str, ...] = (DYNAMO,),
    picks: tuple[str, ...] = LAST,
    feed: Callable[[int], Feed] | None = None,
    is_free: bool = True,
    part: str = "",
    keep: tuple[str, ...] = (),
    **more: Any,
) -> Case:
    make = partial(
        called, model, config, BOTH_INPUTS, picks, part, **(ENCODER if sizes is None else sizes), **more
    )
    return Case(name, "text", make, feed or tokens(LENGTH), FREE if is_free else {}, exporters, keep=keep)


def _decoder(
    name: str,
    model: str,
    config: str,
    *,
    exporters: tuple[str, ...] = (DYNAMO,),
    keep: tuple[str, ...] = (),
    feed: Callable[[int], Feed] | None = None,
    sizes: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    given = {**(DECODER if sizes is None else sizes), **more}
    make = partial(called, model, config, BOTH_INPUTS, ("logits",), **given)
    return Case(name, "text", make, feed or tokens(LENGTH), FREE, exporters, keep=keep)


def _with_past(
    name: str,
    model: str,
    config: str,
    heads: int,
    *,
    exporters: tuple[str, ...] = (DYNAMO,),
    sizes: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    """One token behind PAST others."""
    given = {**(DECODER if sizes is None else sizes), **more, "use_cache": True}
    names = [f"past_{kind}_{layer}" for layer in range(LAYERS) for kind in ("key", "value")]

    def feed(seed: int) -> Feed:
        rng = np.random.default_rng(seed)
        shape = (BATCH, heads, PAST, WIDTH // HEADS)
        return {
            "input_ids": rng.integers(5, VOCABULARY, (BATCH, 1)),
            "attention_mask": np.ones((BATCH, PAST + 1), np.int64),
            **{name: rng.standard_normal(shape, np.float32) for name in names},
        }

    free = {"input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "total"}}
    free |= {name: {0: "batch", 2: "past"} for name in names}
    return Case(name, "text", partial(stepped, model, config, LAYERS, **given), feed, free, exporters)


BATCH, PAST = 2, 31


def _pairs(seed: int) -> Feed:
    """What an encoder reads, and what its decoder has so far."""
    rng = np.random.default_rng(seed)
    return {
        "input_ids": rng.integers(5, VOCABULARY, (2, 48)),
        "decoder_input_ids": rng.integers(5, VOCABULARY, (2, 24)),
    }


PAIRS_FREE = {"input_ids": {0: "batch", 1: "length"}, "decoder_input_ids": {0: "batch", 1: "made"}}

T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": WIDTH // HEADS,
    "d_ff": 4 * WIDTH,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "feed_forward_proj": "gated-gelu",
    "decoder_start_token_id": 0,
}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH,
    "max_position_embeddings": 128,
    "forced_eos_token_id": None,
}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 128,
    "use_cache": False,
}
DEBERTA: dict[str, Any] = {
    **ENCODER,
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
    "position_biased_input": False,
    "max_position_embeddings": 128,
}
QUERIES_OF_T5 = ("SelfAttention.q", "EncDecAttention.q")
"""T5 does not divide scores by the root of a head's width: its queries start smaller."""


ENCODERS = (
    _encoder(
        "distilbert",
        "DistilBertModel",
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "hidden_dim": 4 * WIDTH,
        },
    ),
    _encoder("roberta", "RobertaModel", "RobertaConfig", exporters=BOTH, max_position_embeddings=130),
    _encoder("deberta-v2", "DebertaV2Model", "DebertaV2Config", DEBERTA, exporters=BOTH),
    _encoder(
        "deberta", "DebertaModel", "DebertaConfig", relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    _encoder("albert", "AlbertModel", "AlbertConfig", embedding_size=64),
    _encoder("electra", "ElectraModel", "ElectraConfig", embedding_size=64),
    _encoder("mpnet", "MPNetModel", "MPNetConfig"),
    _encoder(
        "xlnet",
        "XLNetModel",
        "XLNetConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "d_inner": 4 * WIDTH,
            "use_mems_eval": False,
        },
        exporters=BOTH,
    ),
    _encoder(
        "longformer",
        "LongformerModel",
        "LongformerConfig",
        exporters=(TORCHSCRIPT,),
        attention_window=16,
        max_position_embeddings=130,
        is_free=False,
    ),
    _encoder(
        "big_bird",
        "BigBirdModel",
        "BigBirdConfig",
        exporters=(TORCHSCRIPT,),
        attention_type="block_sparse",
        block_size=8,
        num_random_blocks=2,
        feed=tokens(128, 2),
        is_free=False,
        max_position_embeddings=256,
    ),
    _encoder(
        "modernbert",
        "ModernBertModel",
        "ModernBertConfig",
        exporters=BOTH,
        local_attention=32,
        feed=UNPADDED,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    _encoder("nomic_bert", "NomicBertModel", "NomicBertConfig"),
    _encoder("squeezebert", "SqueezeBertModel", "SqueezeBertConfig", embedding_size=WIDTH),
    _encoder(
        "convbert",
        "ConvBertModel",
        "ConvBertConfig",
        {**ENCODER, "num_attention_heads": 4},
        embedding_size=WIDTH,
        exporters=(TORCHSCRIPT,),
    ),
    _encoder(
        "funnel",
        "FunnelModel",
        "FunnelConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "block_sizes": [2, 2],
            "n_head": HEADS,
            "d_head": 64,
            "d_inner": 4 * WIDTH,
            "num_decoder_layers": 1,
        },
        exporters=(TORCHSCRIPT,),
        is_free=False,
    ),
    _encoder("roformer", "RoFormerModel", "RoFormerConfig"),
    _encoder(
        "esm", "EsmModel", "EsmConfig", position_embedding_type="rotary", pad_token_id=1, mask_token_id=2
    ),
    _encoder("t5-encoder", "T5EncoderModel", "T5Config", T5, exporters=(TORCHSCRIPT,), keep=QUERIES_OF_T5),
)

DECODERS = (
    _decoder("gpt2", "GPT2LMHeadModel", "GPT2Config", sizes=GPT2, exporters=BOTH),
    _decoder("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig"),
    _decoder(
        "bloom",
        "BloomForCausalLM",
        "BloomConfig",
        sizes={
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "use_cache": False,
        },
    ),
    _decoder(
        "opt",
        "OPTForCausalLM",
        "OPTConfig",
        sizes={
            **ENCODER,
            "ffn_dim": 4 * WIDTH,
            "word_embed_proj_dim": WIDTH,
            "max_position_embeddings": 128,
            "use_cache": False,
        },
    ),
    _decoder("llama", "LlamaForCausalLM", "LlamaConfig", exporters=BOTH),
    _decoder("qwen3", "Qwen3ForCausalLM", "Qwen3Config"),
    _decoder("mistral", "MistralForCausalLM", "MistralConfig", sliding_window=16, feed=UNPADDED),
    _decoder("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", sliding_window=16, feed=UNPADDED),
    _decoder(
        "phi3", "Phi3ForCausalLM", "Phi3Config", sizes={k: v for k, v in DECODER.items() if k != "head_dim"}
    ),
    _decoder(
        "mamba",
        "MambaForCausalLM",
        "MambaConfig",
        sizes={
            "vocab_size": VOCABULARY,
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "state_size": 8,
            "use_cache": False,
        },
        feed=tokens(16, 2),
        exporters=(TORCHSCRIPT,),
    ),
    _decoder(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        sizes={k: v for k, v in DECODER.items() if k != "head_dim"},
        feed=tokens(16, 2),
        exporters=(TORCHSCRIPT,),
        attention_window_size=32,
    ),
    _decoder(
        "lfm2",
        "Lfm2ForCausalLM",
        "Lfm2Config",
        layer_types=["conv", "full_attention", "conv"],
        feed=tokens(32, 2),
    ),
    _with_past("llama-past", "LlamaForCausalLM", "LlamaConfig", 1, exporters=BOTH),
    _with_past("qwen2-past", "Qwen2ForCausalLM", "Qwen2Config", 1),
    _with_past("gemma2-past", "Gemma2ForCausalLM", "Gemma2Config", 1, query_pre_attn_scalar=64),
    _with_past("gpt2-past", "GPT2LMHeadModel", "GPT2Config", HEADS, sizes=GPT2),
)

PAIRS = (
    Case(
        "t5",
        "text",
        partial(called, "T5Model", "T5Config", tuple(PAIRS_FREE), LAST, **T5),
        _pairs,
        PAIRS_FREE,
        (TORCHSCRIPT,),
        keep=QUERIES_OF_T5,
    ),
    Case(
        "bart",
        "text",
        partial(
            called, "BartModel", "BartConfig", tuple(PAIRS_FREE), (*LAST, "encoder_last_hidden_state"), **BART
        ),
        _pairs,
        PAIRS_FREE,
    ),
    Case(
        "rwkv",
        "text",
        partial(
            called,
            "RwkvForCausalLM",
            "RwkvConfig",
            ("input_ids",),
            ("logits",),
            vocab_size=VOCABULARY,
            hidden_size=96,
            num_hidden_layers=2,
            attention_hidden_size=96,
            context_length=64,
            use_cache=False,
        ),
        tokens(16, 2, has_mask=False),
        {"input_ids": {0: "batch"}},
        (TORCHSCRIPT,),
    ),
)

TEXTS = ENCODERS + DECODERS + PAIRS
