# SPDX-License-Identifier: Apache-2.0
"""What stands between the attentions of networks, as torch's exporters write it: products with what follows
them, norms, projections side by side, embeddings.

    python -m tests.exported_blocks

writes their files of tests/exported anew, with the torch that is installed and onnxscript; tests read these.
"""

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).parent / "exported"
EXPORTERS = {"torchscript": 17, "dynamo": 20}
WIDTH, INNER, WORDS, POSITIONS = 8, 12, 50, 16

Tensor = torch.Tensor
Call = Callable[[Tensor], Tensor]

ACTIVATIONS: Mapping[str, Call] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu with tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu of its own tanh": lambda x: (
        0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))
    ),
    "silu": functional.silu,
    "clip": lambda x: x.clamp(-0.5, 6.0),
    "relu6": functional.relu6,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "mish": functional.mish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky relu": lambda x: functional.leaky_relu(x, 0.1),
}


class Product(nn.Module):
    """x + f(x w + b)."""

    def __init__(self, activation: Call) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(WIDTH, WIDTH), activation

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        return x + self.activation(self.linear(x))


class Image(nn.Module):
    """image + f(conv(image))."""

    def __init__(self, activation: Call) -> None:
        super().__init__()
        self.conv, self.activation = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), activation

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        return image + self.activation(self.conv(image))


class LlamaNorm(nn.Module):
    """Root mean square as Llama and T5 spell it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class SpelledNorm(nn.Module):
    """Layer norm as older BERT code spells it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.weight * ((x - mean) / torch.sqrt(variance + 1e-6)) + self.bias


class Norm(nn.Module):
    """norm(x + scaled x): a sum that is stored nowhere else."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        return self.norm(x + x * self.scale)


class Skip(nn.Module):
    """The sum of a residual stream and its norm, both read later, and the product behind."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.linear = norm, nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        stream = x + x * self.scale
        return stream + self.linear(self.norm(stream))


class Projections(nn.Module):
    """Queries, keys and values of one activation, each with a bias, and the attention that reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        heads = (f(x).view(*x.shape[:2], 2, WIDTH // 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(*heads)


class Embeddings(nn.Module):
    """Words, their places and kinds, and the norm of the sum, as BERT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        self.places, self.norm = nn.Embedding(POSITIONS, WIDTH), nn.LayerNorm(WIDTH)
        self.register_buffer("numbers", torch.arange(POSITIONS)[None])

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> Tensor:
        places = self.places(self.numbers[:, : tokens.shape[1]])
        return self.norm(self.words(tokens) + self.kinds(torch.zeros_like(tokens)) + places)


BLOCKS: Mapping[str, Callable[[], nn.Module]] = {
    **{f"product, {name}": (lambda f=f: Product(f)) for name, f in ACTIVATIONS.items()},
    **{f"image, {name}": (lambda f=f: Image(f)) for name, f in ACTIVATIONS.items()},
    "layer norm": lambda: Norm(nn.LayerNorm(WIDTH)),
    "layer norm, spelled": lambda: Norm(SpelledNorm()),
    "rms norm": lambda: Norm(nn.RMSNorm(WIDTH, eps=1e-6)),
    "rms norm, spelled": lambda: Norm(LlamaNorm()),
    "skip, layer norm": lambda: Skip(nn.LayerNorm(WIDTH)),
    "skip, rms norm": lambda: Skip(LlamaNorm()),
    "projections": Projections,
    "embeddings": Embeddings,
}


def blocks_of(exporter: str) -> list[str]:
    """Names of the blocks that an exporter can write: TorchScript's has no operator for nn.RMSNorm."""
    return [name for name in BLOCKS if (exporter, name) != ("torchscript", "rms norm")]


class Blocks(nn.Module):
    """Side by side, one output each."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(BLOCKS[name]() for name in names)

    def forward(self, x: Tensor, image: Tensor, tokens: Tensor) -> list[Tensor]:
        return [block(x, image, tokens) for block in self.blocks]


def path_of(exporter: str) -> Path:
    return FOLDER / f"blocks_{exporter}.onnx"


def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "x": rng.standard_normal((2, 5, WIDTH)).astype(np.float32),
        "image": rng.standard_normal((2, WIDTH, 6, 7)).astype(np.float32),
        "tokens": rng.integers(0, WORDS, (2, 5)),
    }


def export(exporter: str) -> onnx.ModelProto:
    torch.manual_seed(0)
    blocks = Blocks(blocks_of(exporter)).eval()
    given = tuple(torch.from_numpy(array) for array in inputs().values())
    names = {"input_names": list(inputs()), "output_names": [f"y{n}" for n in range(len(blocks.blocks))]}
    options = {**names, "opset_version": EXPORTERS[exporter]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        if exporter == "dynamo":
            batch, length = torch.export.Dim("B", min=2, max=64), torch.export.Dim("S", min=2, max=16)
            shapes = ({0: batch, 1: length}, {0: batch}, {0: batch, 1: length})
            return torch.onnx.export(
                blocks, given, dynamo=True, dynamic_shapes=shapes, verbose=False, **options
            ).model_proto
        file = io.BytesIO()
        axes = {"x": {0: "B", 1: "S"}, "image": {0: "B"}, "tokens": {0: "B", 1: "S"}}
        torch.onnx.export(blocks, given, file, dynamo=False, dynamic_axes=axes, **options)
    return onnx.load_from_string(file.getvalue())


if __name__ == "__main__":
    from tests.exported_attention import save

    for exporter in EXPORTERS:
        save(export(exporter), path_of(exporter))
