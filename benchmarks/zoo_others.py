# SPDX-License-Identifier: Apache-2.0
"""What is neither a picture nor a text: series, graphs, points, tables, and parts of diffusion models."""

__all__ = ["OTHERS"]

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.zoo_case import BOTH, DYNAMO, TORCHSCRIPT, Case, Feed, pictures, waves
from benchmarks.zoo_transformers import called

if TYPE_CHECKING:
    import torch

BATCH = {0: "batch"}
Maker = Callable[[np.random.Generator], Feed]


def _net(name: str) -> "torch.nn.Module":
    from benchmarks.zoo_nets import NETS

    return NETS[name]()


def _drawn(make: Maker) -> Callable[[int], Feed]:
    return lambda seed: make(np.random.default_rng(seed))


def _own(
    name: str,
    feed: Callable[[int], Feed],
    free: Mapping[str, Mapping[int, str]] | None = None,
    exporters: tuple[str, ...] = (DYNAMO,),
    *,
    folds: bool = True,
    keep: tuple[str, ...] = (),
) -> Case:
    return Case(name, "others", partial(_net, name), feed, free or {}, exporters, folds, keep)


def _diffusion(kind: str, part: str, names: tuple[str, ...], pick: str, **sizes: Any) -> "torch.nn.Module":
    """A model of diffusers, or one of its methods, as a module of arrays."""
    import torch

    made = getattr(importlib.import_module("diffusers"), kind)(**sizes)

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, *arrays: Any) -> Any:
            given = (getattr(self.model, part) if part else self.model)(
                **dict(zip(names, arrays, strict=True))
            )
            if pick == "down_block_res_samples":
                return (*given.down_block_res_samples, given.mid_block_res_sample)
            return getattr(given, pick)

    return Called()


def _stages(count: int, down: str, up: str) -> dict[str, Any]:
    widths = {"block_out_channels": (32, 64, 64)[:count], "norm_num_groups": 8, "layers_per_block": 1}
    return {**widths, "down_block_types": (down,) * count, "up_block_types": (up,) * count}


VAE: dict[str, Any] = {**_stages(3, "DownEncoderBlock2D", "UpDecoderBlock2D"), "latent_channels": 4}
CONTROLLED: dict[str, Any] = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": 64,
    "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "conditioning_embedding_out_channels": (16, 32),
}
DIT: dict[str, Any] = {
    "num_attention_heads": 4,
    "attention_head_dim": 16,
    "in_channels": 4,
    "num_layers": 2,
    "sample_size": 16,
    "patch_size": 2,
    "num_embeds_ada_norm": 10,
    "out_channels": 4,
    "norm_type": "ada_norm_zero",
    "norm_elementwise_affine": False,
}
SD3: dict[str, Any] = {
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 64,
    "caption_projection_dim": 64,
    "pooled_projection_dim": 32,
    "out_channels": 4,
    "pos_embed_max_size": 16,
}


def _control(rng: np.random.Generator) -> Feed:
    return {
        "sample": rng.standard_normal((1, 4, 16, 16), np.float32),
        "timestep": np.array([17]),
        "encoder_hidden_states": rng.standard_normal((1, 12, 64), np.float32),
        "controlnet_cond": rng.random((1, 3, 32, 32), np.float32),
    }


def _classed(rng: np.random.Generator) -> Feed:
    return {
        "hidden_states": rng.standard_normal((2, 4, 16, 16), np.float32),
        "timestep": np.array([3, 700]),
        "class_labels": np.array([1, 4]),
    }


def _prompted(rng: np.random.Generator) -> Feed:
    return {
        "hidden_states": rng.standard_normal((2, 4, 16, 16), np.float32),
        "encoder_hidden_states": rng.standard_normal((2, 12, 64), np.float32),
        "pooled_projections": rng.standard_normal((2, 32), np.float32),
        "timestep": np.array([3, 700]),
    }


def _graph(rng: np.random.Generator) -> Feed:
    return {"nodes": rng.standard_normal((60, 16), np.float32), "edges": rng.integers(0, 60, (2, 240))}


def _clicks(rng: np.random.Generator) -> Feed:
    return {
        "numbers": rng.standard_normal((32, 13), np.float32),
        "categories": rng.integers(0, 500, (32, 4, 3)),
    }


def _speech(rng: np.random.Generator) -> Feed:
    states = {name: 0.3 * rng.standard_normal((1, 2, 64), np.float32) for name in ("hidden", "state")}
    return {
        "samples": rng.standard_normal((2, 512), np.float32),
        **{k: v.astype(np.float32) for k, v in states.items()},
    }


def _normal(**shapes: tuple[int, ...]) -> Callable[[int], Feed]:
    return _drawn(
        lambda rng: {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    )


def _words(rng: np.random.Generator) -> Feed:
    return {"tokens": rng.integers(0, 1000, (2, 24))}


def _line(seed: int) -> Feed:
    return {"images": pictures(96, 2, 1)(seed)["images"][:, :, :32]}


NETWORKS = (
    _own("lstm-tagger", _drawn(_words), {"tokens": {0: "batch", 1: "length"}}, (TORCHSCRIPT,)),
    _own("gru-tagger", _drawn(_words), {}, BOTH),
    _own("rnn-tagger", _drawn(_words), {}, (TORCHSCRIPT,)),
    _own("voice", _drawn(_speech), {}, BOTH),
    _own("crnn", _line, {"images": {0: "batch", 3: "width"}}, (TORCHSCRIPT,), folds=False),
    _own("pointnet", _normal(points=(2, 3, 128)), {"points": BATCH}, BOTH, folds=False),
    _own("graph", _drawn(_graph), {"nodes": {0: "nodes"}, "edges": {1: "edges"}}, BOTH),
    _own("dlrm", _drawn(_clicks), {"numbers": BATCH, "categories": BATCH}, BOTH),
    _own("kan", _normal(x=(64, 16)), {"x": BATCH}, BOTH),
    _own("flow", _normal(x=(64, 32)), {"x": BATCH}, BOTH, keep=("turns",)),
    _own("tcn", waves((2, 8, 128), "series"), {"series": {0: "batch", 2: "time"}}, BOTH),
    _own("fno", waves((4, 2, 64), "x"), {}, keep=("mix",)),
    _own("siren", _normal(at=(256, 2)), {"at": BATCH}),
    _own("edsr", pictures(64, 2), {"images": {0: "batch", 2: "height", 3: "width"}}, BOTH),
    _own("experts", _normal(x=(2, 32, 64)), {"x": {0: "batch", 1: "length"}}, BOTH, keep=("wide", "back")),
    _own("unet3d", _normal(volume=(1, 1, 16, 32, 32)), {"volume": BATCH}, BOTH),
    _own("autoencoder", pictures(32, 4), {"images": BATCH}, (TORCHSCRIPT,)),
    _own("dynamic-conv", pictures(32, 2)),
    _own("matching", _normal(left=(2, 48, 32), right=(2, 40, 32)), {"left": BATCH, "right": BATCH}, BOTH),
    _own("unfold", pictures(24, 2)),
)

SERIES = (
    Case(
        "patchtst",
        "others",
        partial(
            called,
            "PatchTSTForPrediction",
            "PatchTSTConfig",
            ("past_values",),
            ("prediction_outputs",),
            num_input_channels=3,
            context_length=64,
            patch_length=8,
            patch_stride=8,
            prediction_length=16,
            d_model=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=128,
        ),
        lambda seed: {
            "past_values": np.ascontiguousarray(np.moveaxis(waves((4, 3, 64), "x")(seed)["x"], 1, 2))
        },
        {"past_values": BATCH},
        (DYNAMO,),
        folds=False,
    ),
)

DIFFUSION = (
    Case(
        "vae-decoder",
        "others",
        partial(_diffusion, "AutoencoderKL", "decode", ("z",), "sample", **VAE),
        _normal(z=(1, 4, 16, 16)),
        {},
        BOTH,
    ),
    Case(
        "controlnet",
        "others",
        partial(
            _diffusion,
            "ControlNetModel",
            "",
            ("sample", "timestep", "encoder_hidden_states", "controlnet_cond"),
            "down_block_res_samples",
            **CONTROLLED,
        ),
        _drawn(_control),
        {},
    ),
    Case(
        "dit",
        "others",
        partial(
            _diffusion,
            "DiTTransformer2DModel",
            "",
            ("hidden_states", "timestep", "class_labels"),
            "sample",
            **DIT,
        ),
        _drawn(_classed),
        {},
    ),
    Case(
        "sd3",
        "others",
        partial(
            _diffusion,
            "SD3Transformer2DModel",
            "",
            ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"),
            "sample",
            **SD3,
        ),
        _drawn(_prompted),
        {},
    ),
)

OTHERS = NETWORKS + SERIES + DIFFUSION
