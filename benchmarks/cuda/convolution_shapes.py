# SPDX-License-Identifier: Apache-2.0
"""Every convolution of a few networks, and how often each has it."""

__all__ = ["NETWORKS", "name_of"]

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.cuda_cudnn import Shape

MOBILENETV2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and stride of the first: Sandler et al., arXiv 1801.04381, table 2."""

LATENT = 128
"""Height and width of SDXL's latent images of 1024 x 1024 pixels."""


def resnet50(images: int) -> Iterator[Shape]:
    """At 224 x 224; He et al., arXiv 1512.03385, with strides in the 3x3 convolutions."""
    at = partial(Shape, N=images)
    yield at(3, 64, 224, R=7, stride=2)
    inputs, size = 64, 56
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        yield at(inputs, width, size, R=1)
        yield at(width, width, size, stride=stride)
        yield at(inputs, 4 * width, size, R=1, stride=stride, act="")
        inputs, size = 4 * width, size // stride
        for block in range(blocks):
            if block:
                yield at(inputs, width, size, R=1)
                yield at(width, width, size)
            yield at(width, inputs, size, R=1, has_residual=True)


def mobilenetv2(images: int) -> Iterator[Shape]:
    """At 224 x 224; the activation's upper bound is left to the codes."""
    at = partial(Shape, N=images)
    yield at(3, 32, 224, stride=2)
    inputs, size = 32, 112
    for expansion, outputs, blocks, first_stride in MOBILENETV2:
        for block in range(blocks):
            stride = 1 if block else first_stride
            width = expansion * inputs
            if expansion > 1:
                yield at(inputs, width, size, R=1)
            yield at(width, width, size, stride=stride, groups=width)
            size //= stride
            yield at(width, outputs, size, R=1, act="", has_residual=block > 0)
            inputs = outputs
    yield at(inputs, 1280, size, R=1)


def sdxl_unet(images: int) -> Iterator[Shape]:
    """Codes in and float16 out, for normalisations follow; Podell et al., arXiv 2307.01952."""
    at = partial(Shape, N=images, act="", stored="float16")
    yield at(4, 320, LATENT)
    skipped, inputs, size = [320], 320, LATENT
    for level, width in enumerate((320, 640, 1280)):
        for _ in range(2):
            yield from _residual_block(at, inputs, width, size)
            inputs = width
            skipped.append(width)
        if level < 2:
            yield at(width, width, size, stride=2)
            size //= 2
            skipped.append(width)
    for _ in range(2):
        yield from _residual_block(at, inputs, inputs, size)
    for level, width in enumerate((1280, 640, 320)):
        for _ in range(3):
            yield from _residual_block(at, inputs + skipped.pop(), width, size)
            inputs = width
        if level < 2:
            size *= 2
            yield at(width, width, size)
    yield at(320, 4, size)


def _residual_block(at: Callable[..., Shape], inputs: int, outputs: int, size: int) -> Iterator[Shape]:
    yield at(inputs, outputs, size)
    if inputs != outputs:
        yield at(inputs, outputs, size, R=1)
    yield at(outputs, outputs, size, has_residual=True)


NETWORKS: dict[str, Counter[Shape]] = {
    "resnet50-b1": Counter(resnet50(1)),
    "resnet50-b32": Counter(resnet50(32)),
    "resnet50-b256": Counter(resnet50(256)),
    "mobilenetv2-b32": Counter(mobilenetv2(32)),
    "sdxl-unet-b2": Counter(sdxl_unet(2)),
}
"""By name: how often each convolution is in the network."""


def name_of(shape: Shape) -> str:
    """Such as "3x3 s2 128-128 @56 relu res": kernel, stride, channels, input height, what follows."""
    parts = [f"{shape.R}x{shape.R}", f"s{shape.stride}" * (shape.stride > 1)]
    parts += ["depthwise" * (shape.groups > 1), f"{shape.C}-{shape.K}", f"@{shape.S}"]
    return " ".join(filter(None, [*parts, shape.act, "res" * shape.has_residual]))
