# SPDX-License-Identifier: Apache-2.0
"""The UNets of Stable Diffusion XL and 1.5 in plain torch, with the parameter names of their checkpoints.

Podell et al., "SDXL: Improving Latent Diffusion Models for High-Resolution Image Synthesis", 2023: pairs of
residual blocks at three resolutions, transformers of 2 and 10 blocks at the lower two, text of two encoders
side by side, an embedding of sizes and pooled text beside that of the step. Rombach et al., "High-Resolution
Image Synthesis with Latent Diffusion Models", 2022, has four resolutions, transformers of one block at all
but the lowest, 8 heads everywhere, and 1x1 convolutions around transformers. Weights are drawn in place.
"""

__all__ = ["SD15", "SDXL", "SDXL_SMALL", "Sizes", "drawn", "empty_sdxl_unet", "sdxl_inputs", "sdxl_unet"]

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention, silu

Tensor = torch.Tensor


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network.

    Attributes:
        widths: channels at each resolution.
        depths: transformer blocks at each resolution; 0 for none.
        blocks: residual blocks at each resolution.
        middle: transformer blocks in the middle.
        head: channels of an attention head.
        heads: of every attention, where `head` does not say; 0 where it does.
        has_convolutions: around transformers, in the place of linear layers.
        text, pooled: channels of the tokens and of the pooled text; no pooled text and no sizes where 0.
        ids: numbers that sizes are given in, each embedded in `id_width` channels.
        groups: of GroupNorm.
    """

    widths: tuple[int, ...] = (320, 640, 1280)
    depths: tuple[int, ...] = (0, 2, 10)
    middle: int = 10
    blocks: int = 2
    head: int = 64
    heads: int = 0
    has_convolutions: bool = False
    text: int = 2048
    pooled: int = 1280
    ids: int = 6
    id_width: int = 256
    groups: int = 32


SDXL = Sizes()
SD15 = Sizes(
    widths=(320, 640, 1280, 1280),
    depths=(1, 1, 1, 0),
    middle=1,
    heads=8,
    has_convolutions=True,
    text=768,
    pooled=0,
)
SDXL_SMALL = Sizes(
    widths=(32, 64), depths=(0, 2), middle=2, blocks=1, head=16, text=64, pooled=32, id_width=8, groups=8
)


def sdxl_unet(sizes: Sizes = SDXL, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> nn.Module:
    """The network with weights; see `drawn`."""
    return drawn(empty_sdxl_unet(sizes).to(dtype), device)


def drawn(net: nn.Module, device: str) -> nn.Module:
    """A network with seeded normal weights scaled by fan-in, drawn where they lie: other ones elsewhere."""
    net = net.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, parameter[0].numel() ** -0.5, generator=generator)
            else:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
    return net


def empty_sdxl_unet(sizes: Sizes = SDXL) -> nn.Module:
    """The network without memory for its weights."""
    with torch.device("meta"):
        return _UNet(sizes).eval()


def sdxl_inputs(sizes: Sizes, batch: int, height: int, width: int) -> dict[str, Tensor]:
    """Seeded inputs by name; height and width of the latents, an eighth of the image's."""
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    ids = torch.tensor([8.0 * height, 8.0 * width, 0.0, 0.0, 8.0 * height, 8.0 * width])
    inputs = {
        "sample": noise(batch, 4, height, width),
        "timestep": torch.linspace(900.0, 100.0, batch),
        "encoder_hidden_states": noise(batch, 77, sizes.text),
    }
    if not sizes.pooled:
        return inputs
    return inputs | {
        "text_embeds": noise(batch, sizes.pooled),
        "time_ids": ids[: sizes.ids].expand(batch, -1).contiguous(),
    }


class _UNet(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        widths, count = sizes.widths, sizes.blocks
        self.sizes, time = sizes, 4 * widths[0]
        self.conv_in = nn.Conv2d(4, widths[0], 3, padding=1)
        self.time_embedding = _Embedding(widths[0], time)
        if sizes.pooled:
            self.add_embedding = _Embedding(sizes.pooled + sizes.ids * sizes.id_width, time)
        self.down_blocks, self.up_blocks = nn.ModuleList(), nn.ModuleList()
        skips, before = [widths[0]], widths[0]
        for level, width in enumerate(widths):
            inputs = [before] + [width] * (count - 1)
            is_last = level == len(widths) - 1
            self.down_blocks.append(_Down(sizes, inputs, width, sizes.depths[level], time, is_last=is_last))
            skips += [width] * (count if is_last else count + 1)
            before = width
        self.mid_block = _Mid(sizes, before, sizes.middle, time)
        for level, width in reversed(list(enumerate(widths))):
            inputs = []
            for _ in range(count + 1):
                inputs.append(before + skips.pop())
                before = width
            self.up_blocks.append(_Up(sizes, inputs, width, sizes.depths[level], time, is_last=level == 0))
        self.conv_norm_out = nn.GroupNorm(sizes.groups, before, eps=1e-5)
        self.conv_out = nn.Conv2d(before, 4, 3, padding=1)

    def forward(
        self,
        sample: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        text_embeds: Tensor | None = None,
        time_ids: Tensor | None = None,
    ) -> Tensor:
        """The noise in `sample`, like it."""
        time = self.time_embedding(_waves(timestep, self.sizes.widths[0]).to(sample.dtype))
        if text_embeds is not None and time_ids is not None:
            ids = _waves(time_ids.flatten(), self.sizes.id_width).reshape(time_ids.shape[0], -1)
            time = time + self.add_embedding(torch.cat([text_embeds, ids.to(text_embeds.dtype)], -1))
        x = self.conv_in(sample)
        skips = [x]
        for down in self.down_blocks:
            x = down(x, time, encoder_hidden_states, skips)
        x = self.mid_block(x, time, encoder_hidden_states)
        for up in self.up_blocks:
            x = up(x, time, encoder_hidden_states, skips)
        noise: Tensor = self.conv_out(silu(self.conv_norm_out(x)))
        return noise


def _waves(x: Tensor, width: int) -> Tensor:
    """Cosines, then sines, of x [n] at width / 2 frequencies from 1 down to 1/10000."""
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=x.device)
    angles = x.float()[:, None] * torch.exp(-math.log(10000.0) / half * steps)
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1)


class _Embedding(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(inputs, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.linear_2(silu(self.linear_1(x)))
        return embedded


class _Resnet(nn.Module):
    def __init__(self, groups: int, inputs: int, width: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, inputs, eps=1e-5), nn.GroupNorm(groups, width, eps=1e-5)
        self.conv1, self.conv2 = (nn.Conv2d(size, width, 3, padding=1) for size in (inputs, width))
        self.time_emb_proj = nn.Linear(time, width)
        self.conv_shortcut = nn.Conv2d(inputs, width, 1) if inputs != width else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(silu(self.norm1(x))) + self.time_emb_proj(silu(time))[:, :, None, None]
        y = self.conv2(silu(self.norm2(y)))
        return (x if self.conv_shortcut is None else self.conv_shortcut(x)) + y


class _Attention(nn.Module):
    def __init__(self, width: int, source: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k, self.to_v = nn.Linear(source, width, bias=False), nn.Linear(source, width, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        q, k, v = (
            made.view(made.shape[0], -1, made.shape[2] // self.head, self.head).transpose(1, 2)
            for made in (self.to_q(x), self.to_k(source), self.to_v(source))
        )
        y = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        out: Tensor = self.to_out[0](y)
        return out


class _Gated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.proj(x).chunk(2, -1)
        return value * gelu(gate)


class _FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(_Gated(width), nn.Identity(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y


class _Block(nn.Module):
    def __init__(self, sizes: Sizes, width: int) -> None:
        super().__init__()
        text, head = sizes.text, width // sizes.heads if sizes.heads else sizes.head
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attn1, self.attn2 = _Attention(width, width, head), _Attention(width, text, head)
        self.ff = _FeedForward(width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attn1(normed, normed)
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class _Transformer(nn.Module):
    def __init__(self, sizes: Sizes, width: int, depth: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(sizes.groups, width, eps=1e-6)
        self.has_convolutions = sizes.has_convolutions
        self.proj_in, self.proj_out = (
            nn.Conv2d(width, width, 1) if sizes.has_convolutions else nn.Linear(width, width) for _ in "io"
        )
        self.transformer_blocks = nn.ModuleList(_Block(sizes, width) for _ in range(depth))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        y = self.norm(x)
        y = self.proj_in(y) if self.has_convolutions else y
        y = y.permute(0, 2, 3, 1).reshape(batch, height * columns, width)
        y = y if self.has_convolutions else self.proj_in(y)
        for block in self.transformer_blocks:
            y = block(y, text)
        if self.has_convolutions:
            return x + self.proj_out(y.reshape(batch, height, columns, width).permute(0, 3, 1, 2))
        return x + self.proj_out(y).reshape(batch, height, columns, width).permute(0, 3, 1, 2)


class _Stage(nn.Module):
    """Residual blocks, each with a transformer behind it where `depth` is not 0."""

    def __init__(self, sizes: Sizes, inputs: list[int], width: int, depth: int, time: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_Resnet(sizes.groups, size, width, time) for size in inputs)
        self.attentions = nn.ModuleList(_Transformer(sizes, width, depth) for _ in inputs if depth)

    def run(self, number: int, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """One residual block and its transformer."""
        x = self.resnets[number](x, time)
        return self.attentions[number](x, text) if len(self.attentions) else x


class _Conv(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=stride, padding=1)


class _Down(_Stage):
    def __init__(
        self, sizes: Sizes, inputs: list[int], width: int, depth: int, time: int, *, is_last: bool
    ) -> None:
        super().__init__(sizes, inputs, width, depth, time)
        self.downsamplers = nn.ModuleList([] if is_last else [_Conv(width, 2)])

    def forward(self, x: Tensor, time: Tensor, text: Tensor, skips: list[Tensor]) -> Tensor:
        for number in range(len(self.resnets)):
            x = self.run(number, x, time, text)
            skips.append(x)
        sampler: Any
        for sampler in self.downsamplers:
            x = sampler.conv(x)
            skips.append(x)
        return x


class _Mid(nn.Module):
    def __init__(self, sizes: Sizes, width: int, depth: int, time: int) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(_Resnet(sizes.groups, width, width, time) for _ in range(2))
        self.attentions = nn.ModuleList([_Transformer(sizes, width, depth)])

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y: Tensor = self.resnets[1](self.attentions[0](self.resnets[0](x, time), text), time)
        return y


class _Up(_Stage):
    def __init__(
        self, sizes: Sizes, inputs: list[int], width: int, depth: int, time: int, *, is_last: bool
    ) -> None:
        super().__init__(sizes, inputs, width, depth, time)
        self.upsamplers = nn.ModuleList([] if is_last else [_Conv(width, 1)])

    def forward(self, x: Tensor, time: Tensor, text: Tensor, skips: list[Tensor]) -> Tensor:
        for number in range(len(self.resnets)):
            x = self.run(number, torch.cat([x, skips.pop()], 1), time, text)
        sampler: Any
        for sampler in self.upsamplers:
            x = sampler.conv(interpolate(x, scale_factor=2.0, mode="nearest"))
        return x
