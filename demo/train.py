# SPDX-License-Identifier: Apache-2.0
"""Train the demo's residual network on handwritten digits and export it to digits_resnet.onnx.

    pip install ".[train]" && python demo/train.py

About seven minutes on one core. One thread and fixed seeds: a second run on the same machine gives the same
weights.
"""

__all__ = ["DigitsResNet", "main"]

import argparse
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from digits import Digits, load_digits_64
from digits import main as write_arrays
from torch import Tensor, nn
from torch.nn import functional

EPOCHS = 14
BATCH_SIZE = 64
PEAK_LEARNING_RATE = 3e-3  # AdamW, one-cycle
WEIGHT_DECAY = 0.02
LABEL_SMOOTHING = 0.05
MAX_TURN_DEGREES = 12.0
MAX_SCALE_RATIO = 0.12
MAX_SHIFT_RATIO = 0.10  # of half the side: 3 pixels
PIXEL_MAX = 255.0
OPSET = 17


class ResidualBlock(nn.Module):
    """relu(bn(conv3x3(relu(bn(conv3x3(x))))) + shortcut(x)); a 1x1 convolution where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, out_channels, H/stride, W/stride]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class DigitsResNet(nn.Module):
    """Ten logits [N, 10] from grey images [N, 1, 64, 64]: 0.29 GMAC and 454,090 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 64, 3, 2, 1, bias=False)
        self.stem_bn = nn.BatchNorm2d(64)
        self.blocks = nn.Sequential(
            ResidualBlock(64, 64), ResidualBlock(64, 64), ResidualBlock(64, 64), ResidualBlock(64, 128, 2)
        )
        self.classifier = nn.Linear(128, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits, not probabilities."""
        x = self.blocks(torch.relu(self.stem_bn(self.stem(image))))
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))


def augment(images: Tensor) -> Tensor:
    """Each image turned, scaled and shifted a little, at random."""
    count = len(images)
    angle = torch.deg2rad(MAX_TURN_DEGREES * (2 * torch.rand(count) - 1))
    scale = 1 + MAX_SCALE_RATIO * (2 * torch.rand(count) - 1)
    shift = MAX_SHIFT_RATIO * (2 * torch.rand(count, 2) - 1)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    rows = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], dim=1)
    grid = functional.affine_grid(rows.view(count, 2, 3), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(model: nn.Module, digits: Digits, epochs: int) -> None:
    """Fit `model` to the training images, with pixels scaled to 0..1."""
    images = torch.from_numpy(digits.train_images) / PIXEL_MAX
    labels = torch.from_numpy(digits.train_labels)
    step_count = epochs * (len(images) // BATCH_SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, step_count)
    model.train()
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        order = torch.randperm(len(images))
        for picked in order.split(BATCH_SIZE)[: len(images) // BATCH_SIZE]:
            batch = augment(images[picked]).contiguous(memory_format=torch.channels_last)
            loss = functional.cross_entropy(model(batch), labels[picked], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        mean_loss = total / (len(images) // BATCH_SIZE)
        print(
            f"epoch {epoch + 1:2}/{epochs}  loss {mean_loss:.4f}  {time.perf_counter() - start:.1f} s",
            flush=True,
        )


def top1_ratio(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of `images` (values 0..255) whose largest logit is the label's."""
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.from_numpy(images).split(100)])
    return float((logits.argmax(1).numpy() == labels).mean())


def accept_whole_pixels(model: DigitsResNet) -> None:
    """Let `model`, trained on 0..1, take pixels 0..255: the stem, which has no bias, divides."""
    with torch.no_grad():
        model.stem.weight /= PIXEL_MAX


def export(model: nn.Module, path: Path) -> None:
    """Write ONNX with a dynamic batch and every BatchNormalization kept as a node of its own.

    The TorchScript exporter in PRESERVE mode does this and names each node after its module. The newer one
    leaves a chain of Shape, Expand and CastLike before every convolution without bias unless it optimizes.
    """
    torch.onnx.export(
        model.eval().to(memory_format=torch.contiguous_format),
        (torch.zeros(1, 1, 64, 64),),
        path,
        dynamo=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        opset_version=OPSET,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
    )
    onnx.checker.check_model(onnx.load(path), full_check=True)


def main() -> None:
    """Train, measure on the held-out images, export."""
    parser = argparse.ArgumentParser(description="Train the demo's network and export it to ONNX.")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    digits = load_digits_64()
    model = DigitsResNet().to(memory_format=torch.channels_last)
    train(model, digits, arguments.epochs)
    accept_whole_pixels(model)
    top1 = top1_ratio(model, digits.validation_images, digits.validation_labels)
    print(f"top-1 on the {len(digits.validation_labels)} held-out images: {top1:.4f}")
    here = Path(__file__).resolve().parent
    export(model, here / "digits_resnet.onnx")
    write_arrays()


if __name__ == "__main__":
    main()
