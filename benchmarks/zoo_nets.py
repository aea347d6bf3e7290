# SPDX-License-Identifier: Apache-2.0
"""Networks of torch's own layers: recurrent, over graphs and points, of splines, flows, tables, spectra."""

__all__ = ["NETS"]

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Tagger(nn.Module):
    """Tokens -> a recurrent net in both directions -> a score for each."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)
        self.cell = cell(64, 64, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, 12)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.cell(self.table(tokens))[0]).log_softmax(-1)


class Voice(nn.Module):
    """Speech or not, as Silero finds it: sizes of a short spectrum, convolutions, an LSTM."""

    basis: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        angle = 2 * torch.pi * torch.arange(129)[:, None] * torch.arange(256)[None] / 256
        basis = torch.cat([angle.cos(), angle.sin()]) * torch.hann_window(256)
        self.register_buffer("basis", basis[:, None])
        self.convolutions = nn.Sequential(
            nn.Conv1d(129, 128, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(128, 64, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.cell = nn.LSTM(64, 64)
        self.head = nn.Conv1d(64, 1, 1)

    def forward(self, samples: Any, hidden: Any, state: Any) -> Any:
        both = nn.functional.conv1d(
            nn.functional.pad(samples[:, None], (0, 64), mode="reflect"), self.basis, stride=128
        )
        size = (both[:, :129] ** 2 + both[:, 129:] ** 2).sqrt()
        made, (hidden, state) = self.cell(self.convolutions(size).permute(2, 0, 1), (hidden, state))
        return self.head(made.permute(1, 2, 0).relu()).sigmoid().mean(-1), hidden, state


class TextLine(nn.Module):
    """CRNN: convolutions make columns of a picture's line, an LSTM reads them."""

    def __init__(self) -> None:
        super().__init__()

        def block(i: int, o: int, pool: tuple[int, int]) -> list[nn.Module]:
            return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(pool)]

        self.columns = nn.Sequential(
            *block(1, 32, (2, 2)), *block(32, 64, (2, 2)), *block(64, 128, (2, 1)), *block(128, 128, (4, 1))
        )
        self.cell = nn.LSTM(128, 64, 2, bidirectional=True)
        self.head = nn.Linear(128, 40)

    def forward(self, images: Any) -> Any:
        columns = self.columns(images).squeeze(2).permute(2, 0, 1)
        return self.head(self.cell(columns)[0]).log_softmax(2)


class Points(nn.Module):
    """PointNet++'s kind: each point, its nearest ones, and all together."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Sequential(
            nn.Conv1d(3, 64, 1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Conv1d(64, 128, 1),
            nn.BatchNorm1d(128),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Conv1d(256, 128, 1), nn.ReLU(), nn.Conv1d(128, 8, 1))

    def forward(self, points: Any) -> Any:
        own = self.own(points)
        far = torch.cdist(points.transpose(1, 2), points.transpose(1, 2))
        near = far.topk(8, largest=False).indices
        n, c, p = own.shape
        around = own.gather(2, near.reshape(n, 1, -1).expand(n, c, -1)).reshape(n, c, p, 8).amax(3)
        return self.head(torch.cat([around, own.amax(2, keepdim=True).expand_as(own)], 1))


class Graph(nn.Module):
    """Messages along edges, added and compared where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(16, 64)
        self.message = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.update = nn.ModuleList(nn.Linear(192, 64) for _ in range(3))
        self.head = nn.Linear(64, 4)

    def forward(self, nodes: Any, edges: Any) -> Any:
        state = self.enter(nodes).relu()
        start, end = edges[0], edges[1]
        for message, update in zip(self.message, self.update, strict=True):
            sent = message(state)[start]
            at = end[:, None].expand_as(sent)
            total = torch.zeros_like(state).scatter_add(0, at, sent)
            most = torch.zeros_like(state).scatter_reduce(0, at, sent, "amax")
            state = update(torch.cat([state, total, most], 1)).relu()
        return self.head(state), self.head(state.mean(0, keepdim=True))


class Recommender(nn.Module):
    """DLRM: tables of categories, their products with each other, and a tower above."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(500, 32, mode="sum") for _ in range(4))
        self.below = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.above = nn.Sequential(nn.Linear(42, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())

    def forward(self, numbers: Any, categories: Any) -> Any:
        dense = self.below(numbers)
        all_of = torch.stack([dense, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        i, j = torch.tril_indices(5, 5, -1)
        return self.above(torch.cat([dense, (all_of @ all_of.transpose(1, 2))[:, i, j]], 1))


class Splines(nn.Module):
    """A Kolmogorov-Arnold network: every edge is a cubic B-spline beside a SiLU."""

    grid: torch.Tensor

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:], strict=False))
        self.spline = nn.ModuleList(nn.Linear(8 * i, o) for i, o in zip(widths, widths[1:], strict=False))
        self.register_buffer("grid", torch.linspace(-2.2, 2.2, 12))

    def bases(self, x: Any) -> Any:
        grid, x = self.grid, x[..., None]
        made = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - grid[: -k - 1]) / (grid[k:-1] - grid[: -k - 1]) * made[..., :-1]
            right = (grid[k + 1 :] - x) / (grid[k + 1 :] - grid[1:-k]) * made[..., 1:]
            made = left + right
        return made.flatten(-2)

    def forward(self, x: Any) -> Any:
        for base, spline in zip(self.base, self.spline, strict=True):
            x = base(nn.functional.silu(x)) + spline(self.bases(x.clamp(-1.3, 1.3)))
        return x


class Flow(nn.Module):
    """Affine couplings with turns between them, and the logarithm of the volume that they change."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 32)) for _ in range(4)
        )
        self.turns = nn.ParameterList(torch.linalg.qr(torch.randn(32, 32))[0] for _ in range(4))

    def forward(self, x: Any) -> Any:
        total = x.new_zeros(x.shape[0])
        for net, turn in zip(self.nets, self.turns, strict=True):
            kept, moved = (x @ turn).chunk(2, 1)
            log_scale, shift = net(kept).chunk(2, 1)
            log_scale = log_scale.tanh()
            x = torch.cat([kept, moved * log_scale.exp() + shift], 1)
            total = total + log_scale.sum(1)
        return x, total - 0.5 * x.square().sum(1)


class Temporal(nn.Module):
    """Causal convolutions of growing reach, with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(8, 64, 1)
        self.gates = nn.ModuleList(nn.Conv1d(64, 128, 3, dilation=2**i) for i in range(5))
        self.head = nn.ConvTranspose1d(64, 8, 4, 2, 1)

    def forward(self, series: Any) -> Any:
        x = self.enter(series)
        for i, gate in enumerate(self.gates):
            x = x + nn.functional.glu(gate(nn.functional.pad(x, (2 ** (i + 1), 0))), 1)
        return self.head(nn.functional.avg_pool1d(x, 2)).tanh()


class Words(nn.Module):
    """QuartzNet 5x3: depthwise convolutions over time, each with one over channels, and shortcuts."""

    def __init__(self, mels: int = 64, width: int = 256, letters: int = 29) -> None:
        super().__init__()

        def separable(i: int, o: int, size: int, stride: int = 1) -> list[nn.Module]:
            along = nn.Conv1d(i, i, size, stride, size // 2, groups=i, bias=False)
            return [along, nn.Conv1d(i, o, 1, bias=False), nn.BatchNorm1d(o)]

        self.enter = nn.Sequential(*separable(mels, width, 33, 2), nn.ReLU())
        sizes = (33, 39, 51, 63, 75)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *separable(width, width, size),
                nn.ReLU(),
                *separable(width, width, size),
                nn.ReLU(),
                *separable(width, width, size),
            )
            for size in sizes
        )
        self.beside = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 1, bias=False), nn.BatchNorm1d(width)) for _ in sizes
        )
        self.leave = nn.Sequential(*separable(width, 2 * width, 87), nn.ReLU())
        self.head = nn.Conv1d(2 * width, letters, 1)

    def forward(self, features: Any) -> Any:
        x = self.enter(features)
        for block, beside in zip(self.blocks, self.beside, strict=True):
            x = (block(x) + beside(x)).relu()
        return self.head(self.leave(x)).log_softmax(1)


class Spectral(nn.Module):
    """A Fourier neural operator: channels are mixed in the lowest frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(2, 32, 1), nn.Conv1d(32, 1, 1)
        self.beside = nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in range(2))
        self.mix = nn.ParameterList(0.1 * torch.randn(2, 12, 32, 32) for _ in range(2))

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        for beside, mix in zip(self.beside, self.mix, strict=True):
            low = torch.view_as_real(torch.fft.rfft(x))[:, :, :12]
            real, imaginary = low[..., 0].permute(2, 0, 1), low[..., 1].permute(2, 0, 1)
            mixed = torch.stack([real @ mix[0] - imaginary @ mix[1], real @ mix[1] + imaginary @ mix[0]], -1)
            full = nn.functional.pad(mixed.permute(1, 2, 0, 3), (0, 0, 0, x.shape[-1] // 2 + 1 - 12))
            x = nn.functional.gelu(
                torch.fft.irfft(torch.view_as_complex(full.contiguous()), n=64) + beside(x)
            )
        return self.leave(x)


class Waves(nn.Module):
    """SIREN: sines all the way, of pixel coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 128), nn.Linear(128, 128), nn.Linear(128, 128)])
        self.head = nn.Linear(128, 3)

    def forward(self, at: Any) -> Any:
        for layer in self.layers:
            at = (3 * layer(at)).sin()
        return self.head(at)


class Enlarger(nn.Module):
    """EDSR, with its mean taken off and its pixels shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
            for _ in range(6)
        )
        self.up = nn.Conv2d(64, 12, 3, padding=1)

    def forward(self, images: Any) -> Any:
        x = enter = self.enter((images - 0.4) * 4)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return nn.functional.pixel_shuffle(self.up(x + enter), 2) / 4 + 0.4


class Experts(nn.Module):
    """Each token goes to two of eight experts, all of which are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 8)
        self.wide = nn.Parameter(0.12 * torch.randn(8, 64, 128))
        self.back = nn.Parameter(0.09 * torch.randn(8, 128, 64))

    def forward(self, x: Any) -> Any:
        share, which = self.gate(x).softmax(-1).topk(2, -1)
        share = torch.zeros_like(self.gate(x)).scatter(-1, which, share)
        made = nn.functional.gelu(torch.einsum("bsd,edf->bsef", x, self.wide), approximate="tanh")
        return torch.einsum("bsef,efd,bse->bsd", made, self.back, share)


class Volume(nn.Module):
    """A U-Net's parts over volumes, with instance norms."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(1, 16, 3, padding=1),
            nn.InstanceNorm3d(16, affine=True),
            nn.LeakyReLU(),
            nn.Conv3d(16, 32, 3, stride=2, padding=1),
            nn.InstanceNorm3d(32, affine=True),
            nn.LeakyReLU(),
            nn.ConvTranspose3d(32, 16, 2, 2),
            nn.Conv3d(16, 2, 1),
        )

    def forward(self, volume: Any) -> Any:
        return self.net(volume)


class Autoencoder(nn.Module):
    """With a code drawn as its mean, transposed convolutions and a PReLU for every channel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.PReLU(32), nn.Conv2d(32, 64, 4, 2, 1), nn.PReLU(64)
        )
        self.code, self.back = nn.Linear(64 * 64, 2 * 32), nn.Linear(32, 64 * 64)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid()
        )

    def forward(self, images: Any) -> Any:
        mean, log_variance = self.code(self.down(images).flatten(1)).chunk(2, 1)
        return self.up(self.back(mean).view(-1, 64, 8, 8)), mean, log_variance.exp()


class Dynamic(nn.Module):
    """A convolution whose weights are computed from the picture, and a sampled grid (spatial transformer)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 32, 3, padding=1)
        self.weights = nn.Linear(32, 16 * 32 * 9)
        self.turn = nn.Linear(32, 6)

    def forward(self, images: Any) -> Any:
        x = self.enter(images).relu()
        pooled = x.mean((2, 3))
        n, c, h, w = x.shape
        kernels = 0.1 * self.weights(pooled).view(n * 16, c, 3, 3)
        x = nn.functional.conv2d(x.reshape(1, n * c, h, w), kernels, padding=1, groups=n).view(n, 16, h, w)
        turn = 0.1 * self.turn(pooled).view(n, 2, 3) + torch.eye(2, 3)
        return nn.functional.grid_sample(
            x, nn.functional.affine_grid(turn, [n, 16, h, w], align_corners=False), align_corners=False
        )


class Matching(nn.Module):
    """Two sets of features, matched by Sinkhorn's steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 64)

    def forward(self, left: Any, right: Any) -> Any:
        score = torch.einsum("bnc,bmc->bnm", self.layer(left), self.layer(right)) / 8
        for _ in range(4):
            score = score - score.logsumexp(2, keepdim=True)
            score = score - score.logsumexp(1, keepdim=True)
        value, index = score.exp().max(2)
        return score.exp(), value, index


class Windowed(nn.Module):
    """Windows by unfold, products in them, put back by fold; cumulative sums and running products beside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9 * 16, 9 * 16)
        self.enter = nn.Conv2d(3, 16, 1)

    def forward(self, images: Any) -> Any:
        x = self.enter(images)
        parts = nn.functional.unfold(x, 3, padding=1, stride=1)
        made = nn.functional.fold(
            self.layer(parts.transpose(1, 2)).transpose(1, 2), x.shape[2:], 3, padding=1, stride=1
        )
        return made + x.cumsum(3) / 8, torch.roll(x, (3, 5), (2, 3)).triu(), x.std((2, 3), keepdim=True)


NETS: dict[str, Callable[[], nn.Module]] = {
    "lstm-tagger": lambda: Tagger(nn.LSTM),
    "gru-tagger": lambda: Tagger(nn.GRU),
    "rnn-tagger": lambda: Tagger(nn.RNN),
    "voice": Voice,
    "crnn": TextLine,
    "pointnet": Points,
    "graph": Graph,
    "dlrm": Recommender,
    "kan": lambda: Splines(16, 64, 64, 8),
    "flow": Flow,
    "tcn": Temporal,
    "quartznet": Words,
    "fno": Spectral,
    "siren": Waves,
    "edsr": Enlarger,
    "experts": Experts,
    "unet3d": Volume,
    "autoencoder": Autoencoder,
    "dynamic-conv": Dynamic,
    "matching": Matching,
    "unfold": Windowed,
}
