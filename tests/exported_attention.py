# SPDX-License-Identifier: Apache-2.0
"""Attention in many spellings, as torch's exporters write it: what transformers in ONNX files are made of.

    python -m tests.exported_attention

writes tests/exported anew, with the torch that is installed and onnxscript; tests read the files.
"""

import io
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, softmax

FOLDER = Path(__file__).parent / "exported"
EXPORTERS = {"torchscript": 17, "dynamo": 20, "dynamo attention": 23}
"""Exporters, and the opset that each writes; from 23 on there is an operator for attention."""

B, S, HEADS, SIZE = 2, 6, 4, 4
WIDTH = HEADS * SIZE
GROUPS = 2
POSITIONS = 16

Tensor = torch.Tensor


class Heads(nn.Module):
    """Projections around an attention; `attend` says how it is computed.

    Args:
        groups: heads of k and v.
    """

    def __init__(self, groups: int = HEADS) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, groups * SIZE), nn.Linear(WIDTH, groups * SIZE)

    def forward(self, x: Tensor, tokens: Tensor, bias: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = (
            project(x).view(x.shape[0], x.shape[1], -1, SIZE).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        y = self.attend(q, k, v, tokens, bias, allowed)
        return self.o(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))


def sdpa(how: Callable[..., Mapping[str, object]], groups: int = HEADS) -> Heads:
    """torch's own function; `how` gives its keywords from (q, tokens, bias, allowed)."""
    heads = Heads(groups)
    heads.attend = lambda q, k, v, tokens, bias, allowed: scaled_dot_product_attention(
        q, k, v, **how(q, tokens, bias, allowed)
    )
    return heads


class Constant(Heads):
    """With a mask that is part of the model."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def attend(self, q, k, v, tokens, bias, allowed):
        return scaled_dot_product_attention(q, k, v, self.mask)


class Eager(Heads):
    """softmax(q k^T / sqrt(D) + mask) v, with the scale where `scaled` puts it."""

    def __init__(self, scaled: str = "scores", masked: str = "added") -> None:
        super().__init__()
        self.scaled, self.masked = scaled, masked
        tril = torch.tril(torch.ones(POSITIONS, POSITIONS, dtype=torch.bool))
        self.register_buffer("causal", tril.view(1, 1, POSITIONS, POSITIONS))

    def attend(self, q, k, v, tokens, bias, allowed):
        root = SIZE**-0.25
        q = {"q": q * SIZE**-0.5, "both": q * root}.get(self.scaled, q)
        k = k * root if self.scaled == "both" else k
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / math.sqrt(SIZE) if self.scaled == "scores" else scores
        n = k.shape[2]
        if self.masked == "chosen":
            low = torch.finfo(scores.dtype).min
            scores = torch.where(self.causal[:, :, :n, :n], scores, torch.full([], low))
        if self.masked == "filled":
            scores = scores.masked_fill(tokens[:, None, None, :] == 0, -1e9)
        if self.masked in ("added", "chosen"):
            scores = scores + padding(tokens)
        return torch.matmul(softmax(scores, -1), v)


class Shared(Heads):
    """Fewer heads of k and v than of q, repeated as Llama does."""

    def __init__(self, masked: str) -> None:
        super().__init__(GROUPS)
        self.masked = masked

    def attend(self, q, k, v, tokens, bias, allowed):
        b, _, n, _ = q.shape
        k, v = (
            x[:, :, None].expand(b, GROUPS, HEADS // GROUPS, n, SIZE).reshape(b, HEADS, n, SIZE)
            for x in (k, v)
        )
        if self.masked == "is_causal":
            return scaled_dot_product_attention(q, k, v, is_causal=True)
        low = torch.finfo(q.dtype).min
        mask = torch.triu(torch.full((n, n), low), diagonal=1)[None, None].expand(b, 1, -1, -1)
        is_padding = (mask + tokens[:, None, None, :].to(q.dtype)) == 0
        mask = mask.masked_fill(is_padding, low)
        scores = torch.matmul(q, k.transpose(2, 3)) * SIZE**-0.5 + mask
        return torch.matmul(softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


class Library(nn.Module):
    """nn.MultiheadAttention, which puts the sequence before the batch."""

    def __init__(self, mask: Tensor | None = None, *, pads: bool = False) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.pads = pads
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor, tokens: Tensor, bias: Tensor, allowed: Tensor) -> Tensor:
        padding = tokens == 0 if self.pads else None
        return self.inner(x, x, x, need_weights=False, attn_mask=self.mask, key_padding_mask=padding)[0]


class Blocks(nn.Module):
    """Attentions side by side, one output each."""

    def __init__(self, blocks: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict(blocks)

    def forward(self, x: Tensor, tokens: Tensor, bias: Tensor, allowed: Tensor) -> list[Tensor]:
        return [block(x, tokens, bias, allowed) for block in self.blocks.values()]


def padding(tokens: Tensor) -> Tensor:
    """[B, 1, 1, S]: the lowest number for tokens that are padding."""
    return (1.0 - tokens[:, None, None, :].float()) * torch.finfo(torch.float32).min


def spread_padding(tokens: Tensor, q: Tensor) -> Tensor:
    """[B, 1, S, S]: the same for every query, by masked_fill."""
    mask = tokens[:, None, None, :].expand(q.shape[0], 1, q.shape[2], q.shape[2]).to(q.dtype)
    inverted = 1.0 - mask
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(q.dtype).min)


TRIL = torch.tril(torch.ones(S, S, dtype=torch.bool))

DYNAMIC: Mapping[str, Callable[[], nn.Module]] = {
    "plain": lambda: sdpa(lambda q, tokens, bias, allowed: {}),
    "another scale": lambda: sdpa(lambda q, tokens, bias, allowed: {"scale": 0.3}),
    "causal": lambda: sdpa(lambda q, tokens, bias, allowed: {"is_causal": True}),
    "a bias": lambda: sdpa(lambda q, tokens, bias, allowed: {"attn_mask": bias}),
    "truths": lambda: sdpa(lambda q, tokens, bias, allowed: {"attn_mask": allowed}),
    "truths of the padding": lambda: sdpa(
        lambda q, tokens, bias, allowed: {"attn_mask": tokens[:, None, None, :] != 0}
    ),
    "a spread mask": lambda: sdpa(lambda q, tokens, bias, allowed: {"attn_mask": spread_padding(tokens, q)}),
    "an added mask": lambda: Eager(),
    "q scaled": lambda: Eager("q"),
    "both scaled": lambda: Eager("both"),
    "chosen and added": lambda: Eager(masked="chosen"),
    "filled": lambda: Eager(masked="filled"),
    "shared heads": lambda: Shared("added"),
    "shared heads, causal": lambda: Shared("is_causal"),
}
STATIC: Mapping[str, Callable[[], nn.Module]] = {
    "constant truths": lambda: Constant(TRIL),
    "constant truths of no triangle": lambda: Constant(TRIL | (torch.arange(S) == 3)),
    "constant, causal": lambda: Constant(torch.zeros(S, S).masked_fill(~TRIL, -math.inf)),
    "constant of every head": lambda: Constant(torch.linspace(-2, 1, HEADS * S * S).view(HEADS, S, S)),
    "library": lambda: Library(),
    "library, causal": lambda: Library(~TRIL),
    "library, causal floats": lambda: Library(torch.zeros(S, S).masked_fill(~TRIL, -math.inf)),
    "library, padding": lambda: Library(pads=True),
}


def encoder() -> nn.Module:
    """Two of torch's own layers, with its own MultiheadAttention."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def export_encoder(exporter: str) -> onnx.ModelProto:
    """`encoder` for any number of samples."""
    torch.manual_seed(0)
    x = torch.from_numpy(inputs()["x"])
    options = {"input_names": ["x"], "output_names": ["y"], "opset_version": EXPORTERS[exporter]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.mha.set_fastpath_enabled(False)  # it is one operator that ONNX does not have
        if exporter != "torchscript":
            shapes = ({0: torch.export.Dim("B", min=2, max=64)},)
            return torch.onnx.export(
                encoder().eval(), (x,), dynamo=True, dynamic_shapes=shapes, verbose=False, **options
            ).model_proto
        file = io.BytesIO()
        axes = {"x": {0: "B"}}
        torch.onnx.export(encoder().eval(), (x,), file, dynamo=False, dynamic_axes=axes, **options)
    return onnx.load_from_string(file.getvalue())


def inputs() -> dict[str, np.ndarray]:
    """One batch; the second sample is padded."""
    rng = np.random.default_rng(7)
    tokens = np.ones((B, S), np.int64)
    tokens[1, 4:] = 0
    allowed = rng.random((S, S)) < 0.6
    return {
        "x": rng.standard_normal((B, S, WIDTH)).astype(np.float32),
        "tokens": tokens,
        "bias": rng.standard_normal((S, S)).astype(np.float32),
        "allowed": allowed | np.eye(S, dtype=bool),
    }


def path_of(exporter: str, sizes: str) -> Path:
    """What an exporter wrote: DYNAMIC blocks, of "free" sizes, or STATIC ones, "fixed", or the "encoder"."""
    return FOLDER / f"attention {exporter} {sizes}.onnx".replace(" ", "_")


def export(blocks: Mapping[str, Callable[[], nn.Module]], exporter: str) -> onnx.ModelProto:
    """One model with an output for every block; sizes are free in DYNAMIC."""
    opset = EXPORTERS[exporter]
    torch.manual_seed(0)
    model = Blocks({name.replace(".", " "): make() for name, make in blocks.items()}).eval()
    given = tuple(torch.from_numpy(array) for array in inputs().values())
    names = {"input_names": list(inputs()), "output_names": [f"y{n}" for n in range(len(blocks))]}
    free = {"x": {0: "B", 1: "S"}, "tokens": {0: "B", 1: "S"}, "bias": {0: "S", 1: "S"}}
    free["allowed"] = free["bias"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        if exporter != "torchscript":
            sizes = {"B": torch.export.Dim("B", min=2, max=64), "S": torch.export.Dim("S", min=2, max=16)}
            shapes = {name: {axis: sizes[size] for axis, size in axes.items()} for name, axes in free.items()}
            program = torch.onnx.export(
                model,
                given,
                dynamo=True,
                dynamic_shapes=shapes if blocks is DYNAMIC else None,
                opset_version=opset,
                verbose=False,
                **names,
            )
            return program.model_proto
        file = io.BytesIO()
        axes = free if blocks is DYNAMIC else None
        torch.onnx.export(model, given, file, dynamo=False, dynamic_axes=axes, opset_version=opset, **names)
    return onnx.load_from_string(file.getvalue())


def save(model: onnx.ModelProto, path: Path) -> None:
    """Without what exporters say of where nodes came from."""
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    model.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")
    onnx.save(model, path)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for exporter in EXPORTERS:
        for sizes, blocks in (("free", DYNAMIC), ("fixed", STATIC)):
            save(export(blocks, exporter), path_of(exporter, sizes))
        save(export_encoder(exporter), path_of(exporter, "encoder"))
