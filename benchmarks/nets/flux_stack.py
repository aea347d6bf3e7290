# SPDX-License-Identifier: Apache-2.0
"""A stack of transformer blocks shaped like FLUX.1's in plain torch: both kinds, at their full width.

Black Forest Labs, "FLUX.1", 2024 (github.com/black-forest-labs/flux, model.py and layers.py): blocks in which
text and image have weights of their own and attend to each other, then blocks in which both are one sequence
and attention stands beside the feed-forward; norms are scaled and shifted by an embedding of the step; q and
k are normalized, then turned by their places in the image. The network has 19 and 38 blocks; a stack fewer.
"""

__all__ = ["FLUX", "FLUX_SMALL", "FluxSizes", "empty_flux_stack", "flux_inputs"]

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

Tensor = torch.Tensor

EPSILON = 1e-6
RATIO = 4
"""Of the feed-forward's width to the stack's."""


@dataclass(frozen=True)
class FluxSizes:
    """Sizes of the stack.

    Attributes:
        double, single: blocks with two streams, and with one.
        axes: channels of a head that turn with the place of a token: of text, by row and by column.
        text: tokens of text.
    """

    width: int = 3072
    heads: int = 24
    double: int = 1
    single: int = 2
    axes: tuple[int, ...] = (16, 56, 56)
    text: int = 512
    theta: float = 10000.0


FLUX = FluxSizes()
FLUX_SMALL = FluxSizes(width=64, heads=4, double=1, single=1, axes=(4, 6, 6), text=8)


def empty_flux_stack(sizes: FluxSizes, height: int, width: int) -> nn.Module:
    """The stack without memory for its weights, for images of height * width tokens."""
    with torch.device("meta"):
        return _Stack(sizes, height, width).eval()


def flux_inputs(sizes: FluxSizes, batch: int, height: int, width: int) -> dict[str, Tensor]:
    """Seeded inputs by name: tokens of the image and of text, and the embedding of the step."""
    generator = torch.Generator().manual_seed(1)
    shapes = {"img": (height * width, sizes.width), "txt": (sizes.text, sizes.width), "vec": (sizes.width,)}
    return {name: torch.randn(batch, *shape, generator=generator) for name, shape in shapes.items()}


class _Stack(nn.Module):
    def __init__(self, sizes: FluxSizes, height: int, width: int) -> None:
        super().__init__()
        self.sizes, self.grid = sizes, (height, width)
        self.double_blocks = nn.ModuleList(_Double(sizes) for _ in range(sizes.double))
        self.single_blocks = nn.ModuleList(_Single(sizes) for _ in range(sizes.single))

    def forward(self, img: Tensor, txt: Tensor, vec: Tensor) -> Tensor:
        """The tokens of the image behind all blocks."""
        turn = _turns(self.sizes, *self.grid, img)
        step = silu(vec)[:, None]
        for block in self.double_blocks:
            img, txt = block(img, txt, step, turn)
        x = torch.cat([txt, img], 1)
        for block in self.single_blocks:
            x = block(x, step, turn)
        return x[:, self.sizes.text :]


def _turns(sizes: FluxSizes, height: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [tokens, channels of a head / 2] by which q and k turn; text stands at place 0.

    Angles are FP32; what comes of them has the type of `like`, and lies where it lies.
    """
    rows, columns = (torch.arange(n, dtype=torch.float32, device=like.device) for n in (height, width))
    rows = rows[:, None].expand(height, width).reshape(-1)
    columns = columns[None].expand(height, width).reshape(-1)
    text = torch.zeros(sizes.text, device=like.device)
    angles = []
    for place, channels in zip((torch.zeros_like(rows), rows, columns), sizes.axes, strict=True):
        halves = torch.arange(0, channels, 2, dtype=torch.float32, device=like.device)
        rates = sizes.theta ** -(halves / channels)
        angles.append(torch.cat([text, place])[:, None] * rates)
    turned = torch.cat(angles, 1)
    return turned.cos().to(like.dtype), turned.sin().to(like.dtype)


class _Heads(nn.Module):
    """q and k normalized, and turned by their places."""

    def __init__(self, sizes: FluxSizes) -> None:
        super().__init__()
        self.heads, self.channels = sizes.heads, sizes.width // sizes.heads
        self.query_norm, self.key_norm = (nn.RMSNorm(self.channels, eps=EPSILON) for _ in "qk")

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, [batch, heads, tokens, channels] each, not turned yet."""
        q, k, v = (
            x.reshape(*x.shape[:2], self.heads, self.channels).transpose(1, 2) for x in qkv.chunk(3, -1)
        )
        return self.query_norm(q), self.key_norm(k), v


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Pairs of neighbouring channels, each turned by the angle of its place."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = turn
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def _attended(q: Tensor, k: Tensor, v: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    y = scaled_dot_product_attention(_turned(q, turn), _turned(k, turn), v)
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (1 + scale) * layer_norm(x, x.shape[-1:], eps=EPSILON) + shift


class _Stream(nn.Module):
    """One side of a block of two: its projections, its feed-forward, and what the step makes of its norms."""

    def __init__(self, sizes: FluxSizes) -> None:
        super().__init__()
        width = sizes.width
        self.mod, self.qkv = nn.Linear(width, 6 * width), nn.Linear(width, 3 * width)
        self.norm, self.proj = _Heads(sizes), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, RATIO * width), nn.GELU(approximate="tanh"), nn.Linear(RATIO * width, width)
        )


class _Double(nn.Module):
    def __init__(self, sizes: FluxSizes) -> None:
        super().__init__()
        self.text, self.img, self.txt = sizes.text, _Stream(sizes), _Stream(sizes)

    def forward(
        self, img: Tensor, txt: Tensor, step: Tensor, turn: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        streams = ((self.txt, txt), (self.img, img))
        steps = [stream.mod(step).chunk(6, -1) for stream, _ in streams]
        made = [
            stream.norm.split(stream.qkv(_modulated(x, shift, scale)))
            for (stream, x), (shift, scale, *_) in zip(streams, steps, strict=True)
        ]
        q, k, v = (torch.cat(parts, 2) for parts in zip(*made, strict=True))
        y = _attended(q, k, v, turn)
        found = []
        for (stream, x), part, row in zip(
            streams, (y[:, : self.text], y[:, self.text :]), steps, strict=True
        ):
            _, _, gate, shift, scale, last = row
            x = x + gate * stream.proj(part)
            found.append(x + last * stream.mlp(_modulated(x, shift, scale)))
        return found[1], found[0]


class _Single(nn.Module):
    def __init__(self, sizes: FluxSizes) -> None:
        super().__init__()
        self.width = width = sizes.width
        self.mod = nn.Linear(width, 3 * width)
        self.linear1 = nn.Linear(width, (3 + RATIO) * width)
        self.linear2 = nn.Linear((1 + RATIO) * width, width)
        self.norm = _Heads(sizes)

    def forward(self, x: Tensor, step: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        shift, scale, gate = self.mod(step).chunk(3, -1)
        qkv, hidden = self.linear1(_modulated(x, shift, scale)).split(
            [3 * self.width, RATIO * self.width], -1
        )
        y = _attended(*self.norm.split(qkv), turn)
        y = torch.cat([y, gelu(hidden, approximate="tanh")], -1)
        made: Tensor = self.linear2(y)
        return x + gate * made
