# SPDX-License-Identifier: Apache-2.0
"""A training loop for prepared modules: from the float network's outputs alone, within steps and seconds.

The rate rises from nothing, for Adam's first steps move every weight by the whole of it, and falls as a half
cosine. The state that is kept is the one with the least output error on pictures that no step sees, that
before training among them. In passes, each from the best state so far and with a part of the last one's rate:
at a rate that is too high a network of 8 bits loses in its first steps what no later one brings back, and
which rate that is depends on the network.
"""

__all__ = ["Course", "Training", "signal_db", "train"]

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from quantrt.torch.qat import PreparedModel, distillation_loss

SHIFT = 4
"""Pixels that pictures are moved by at most, either way."""
PASTED = (0.25, 0.75)
"""Of height and width: sides of the rectangle of another picture that half of them get, as in CutMix
(arXiv 1905.04899)."""
WARMUP_RATIO = 0.1
"""Of the steps of a pass: those in which the rate rises."""
PASSES = 3
RATE_FALL = 0.25
"""The rate of a pass over that of the pass before."""
CHECKS = 8
"""Times in a pass that the held out pictures are looked at."""
TEMPERATURE = 4.0
"""Of the distillation: the small probabilities count too, for they are most of what the outputs say."""
HELD_BATCH = 100
TINY_S = 1e-3
"""Of a pass whose time is over before it begins: one step is taken."""


@dataclass(frozen=True)
class Training:
    """How a network is trained.

    Attributes:
        batch: pictures of a step.
        steps: of all passes together.
        rate: of Adam, the highest of the first pass.
        budget_s: above 0; ends training early, with the schedules at their ends.
    """

    steps: int
    batch: int
    rate: float
    budget_s: float = math.inf


@dataclass(frozen=True)
class Course:
    """How it went.

    Attributes:
        steps: that were taken.
        best_step: after which the kept state was seen; 0 where training gained nothing.
        held_start_db, held_best_db: signal over noise of the outputs on the held out pictures.
        losses: means over the quarters of the steps.
        train_s: seconds, checks included.
    """

    steps: int
    best_step: int
    held_start_db: float
    held_best_db: float
    losses: list[float]
    train_s: float


def train(
    prepared: PreparedModel, teacher: nn.Module, pictures: torch.Tensor, held: torch.Tensor, plan: Training
) -> Course:
    """Train in place, on the device that everything is on; the best state is left, in evaluation mode.

    Args:
        teacher: the float network, in evaluation mode.
        pictures: f32 [N, C, H, W], for the steps.
        held: the same, for the choice of the state.
    """
    run = _Run(prepared, teacher, pictures, held, plan.batch)
    start_db, began = run.best_db, time.perf_counter()
    for index in range(PASSES):
        run.train(
            steps=math.ceil(plan.steps * (index + 1) / PASSES) - len(run.losses),
            rate=plan.rate * RATE_FALL**index,
            until=began + plan.budget_s * (index + 1) / PASSES,
        )
    prepared.eval()
    parts = np.array_split([loss.item() for loss in run.losses], 4)
    return Course(
        steps=len(run.losses),
        best_step=run.best_step,
        held_start_db=start_db,
        held_best_db=run.best_db,
        losses=[round(float(np.mean(part)), 6) for part in parts if len(part)],
        train_s=round(time.perf_counter() - began, 1),
    )


class _Run:
    """Steps so far, and the best state among them."""

    def __init__(
        self,
        prepared: PreparedModel,
        teacher: nn.Module,
        pictures: torch.Tensor,
        held: torch.Tensor,
        batch: int,
    ) -> None:
        self.prepared, self.teacher = prepared, teacher
        self.pictures, self.held, self.batch = pictures, held, batch
        self.generator = torch.Generator().manual_seed(0)
        self.wanted = _outputs(teacher, held)
        self.losses: list[torch.Tensor] = []
        self.best, self.best_step = copy.deepcopy(prepared.state_dict()), 0
        self.best_db = -math.inf
        self._look()

    def train(self, *, steps: int, rate: float, until: float) -> None:
        """One pass; the best state of all so far is left.

        Args:
            steps: at most.
            until: ends it early, by the performance counter.
        """
        optimizer = torch.optim.Adam(self.prepared.parameters())
        began, progress, looked = time.perf_counter(), 0.0 if steps else 1.0, 0.0
        done = len(self.losses)
        while progress < 1.0:
            for group in optimizer.param_groups:
                group["lr"] = rate * _rate_ratio(progress)
            chosen = torch.randint(0, len(self.pictures), (self.batch,), generator=self.generator)
            images = _varied(self.pictures[chosen], self.generator)
            self.losses.append(_step(self.prepared, self.teacher, images, optimizer))
            now = time.perf_counter()
            progress = max((len(self.losses) - done) / steps, (now - began) / max(until - began, TINY_S))
            if progress - looked >= 1.0 / CHECKS or progress >= 1.0:
                looked = progress
                self._look()
        self.prepared.load_state_dict(self.best)

    def _look(self) -> None:
        """Keep the state if it is the best one."""
        found_db, step = signal_db(_outputs(self.prepared, self.held), self.wanted), len(self.losses)
        if found_db > self.best_db:
            self.best = copy.deepcopy(self.prepared.state_dict())
            self.best_db, self.best_step = found_db, step
        print(f"step {step}: held out {found_db:.2f} dB, the best {self.best_db:.2f}", flush=True)


def signal_db(outputs: torch.Tensor, wanted: torch.Tensor) -> float:
    """Signal over noise."""
    noise = (outputs - wanted).double().square().sum() / wanted.double().square().sum()
    return -10.0 * math.log10(noise.item())


def _step(
    prepared: PreparedModel, teacher: nn.Module, images: torch.Tensor, optimizer: torch.optim.Optimizer
) -> torch.Tensor:
    with torch.no_grad():
        wanted = teacher(images)
    prepared.train()
    loss = distillation_loss(prepared(images), wanted, temperature=TEMPERATURE)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _rate_ratio(progress: float) -> float:
    """Of the highest rate, after `progress` of a pass."""
    rising = min(1.0, progress / WARMUP_RATIO)
    return rising * 0.5 * (1.0 + math.cos(math.pi * progress))


@torch.no_grad()
def _outputs(network: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
    network.eval()
    return torch.cat([network(part) for part in pictures.split(HELD_BATCH)])


def _varied(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirrored or not, each; all moved alike, edges repeated; half of them with a part of another one."""
    is_mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    images = torch.where(is_mirrored[:, None, None, None], images.flip(3), images)
    height, width = images.shape[2:]
    padded = functional.pad(images, (SHIFT,) * 4, mode="replicate")
    row, column = torch.randint(0, 2 * SHIFT + 1, (2,), generator=generator).tolist()
    moved = padded[:, :, row : row + height, column : column + width].clone()
    rows, columns = (_part(size, generator) for size in (height, width))
    half = len(images) // 2
    moved[:half, :, rows, columns] = moved[half : 2 * half, :, rows, columns]
    return moved


def _part(size: int, generator: torch.Generator) -> slice:
    """A part of an axis, its length drawn between those of PASTED."""
    shortest, longest = (round(ratio * size) for ratio in PASTED)
    length = int(torch.randint(shortest, longest + 1, (), generator=generator))
    first = int(torch.randint(0, size - length + 1, (), generator=generator))
    return slice(first, first + length)
