# SPDX-License-Identifier: Apache-2.0
"""The artefact of stage 3: a float graph as regions, each with the formula that it computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quantrt.regions.expression import IDENTITY, Expression

__all__ = [
    "Attention",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Formula",
    "Gemm",
    "GroupNorm",
    "Host",
    "LinearAttention",
    "Mismatch",
    "Nodes",
    "Pool",
    "PooledConv",
    "Region",
    "Regions",
    "Resize",
    "ResizedConv",
    "Rows",
    "View",
]


@dataclass(frozen=True)
class Gemm:
    """outputs = epilogue(x[..., K] @ w).

    Attributes:
        x: the edge of the activation, (node name, input index); its value is `Region.inputs[0]`.
        w: the edge of the constant weight.
        weight: the constant's name.
        is_transposed: the constant is [N, K]; otherwise [K, N].
        epilogue: operand 0 is the accumulator, shape [..., N]; constants have N elements and run along it;
            tensors have the shape of the output, or one element for each row, [..., 1].
        is_gated: the product has 2 N columns: operand 0 are the left ones, operand 1, a sum too, the others.
    """

    x: tuple[str, int]
    w: tuple[str, int]
    weight: str
    is_transposed: bool
    epilogue: Expression
    is_gated: bool = False


@dataclass(frozen=True)
class Conv:
    """outputs = epilogue(conv(x, w)), 1-D to 3-D.

    Attributes:
        x, w: edges, as in Gemm; the constant `weight` is [C_out, C_in / groups, *kernel].
        strides, dilations: one per spatial axis.
        pads: begins of every spatial axis, then ends.
        epilogue: operand 0 is the accumulator, shape [N, C_out, *out]; constants have C_out elements and run
            along axis 1; tensors have the shape of the output.
        pad_code: what the padding is of, where x are codes: their zero point.
    """

    x: tuple[str, int]
    w: tuple[str, int]
    weight: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    epilogue: Expression
    pad_code: int = 0


@dataclass(frozen=True)
class ConvTranspose:
    """outputs = epilogue(transposed convolution of x and w), 1-D to 3-D.

    Attributes:
        x, w: edges, as in Gemm; the constant `weight` is [C_in, C_out / groups, *kernel].
        kernel, strides, dilations: one per spatial axis.
        pads: what is cut off the begins of every spatial axis, then off the ends.
        output_padding: how much less is cut off the ends.
        epilogue: as in Conv.
    """

    x: tuple[str, int]
    w: tuple[str, int]
    weight: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    epilogue: Expression

    @property
    def is_spread(self) -> bool:
        """Whether every pixel becomes a block of its own: the kernel is as large as the stride."""
        is_plain = not any((*self.pads, *self.output_padding)) and set(self.dilations) == {1}
        return is_plain and self.kernel == self.strides and self.groups == 1

    def output_size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result's spatial axes, from those of x."""
        rank = len(self.kernel)
        cut = [self.pads[i] + self.pads[rank + i] - self.output_padding[i] for i in range(rank)]
        full = [
            (size[i] - 1) * self.strides[i] + self.dilations[i] * (self.kernel[i] - 1) + 1
            for i in range(rank)
        ]
        return tuple(max(0, a - b) for a, b in zip(full, cut, strict=True))


@dataclass(frozen=True)
class Pool:
    """outputs = epilogue(maximum or mean of x over windows, or over all spatial axes).

    Attributes:
        x: edge, as in Gemm; the value is [N, C, *spatial].
        kind: "max", which hands on NaN, or "average".
        kernel, strides, dilations, pads: of one or two spatial axes, as in Conv; empty for a global one.
        has_ceil: sizes of the output are rounded up, without windows that would start behind the input.
        counts_padding: elements of the padding count as zeros in a mean.
        is_global: one window, the whole image, of any number of spatial axes.
        keeps_axes: the result of a global one is [N, C, 1, ...]; otherwise [N, C].
        epilogue: operand 0 is the accumulator, what was pooled: of codes their maximum, a code, or their
            mean. Constants have C elements and run along axis 1; tensors have the shape of the output.
        pad_code: what padding that counts in a mean is of, where x are codes: their zero point.
    """

    x: tuple[str, int]
    kind: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    has_ceil: bool
    counts_padding: bool
    is_global: bool
    keeps_axes: bool
    epilogue: Expression
    pad_code: int = 0

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result, from that of x."""
        if self.is_global:
            return (*shape[:2], *([1] * (len(shape) - 2) if self.keeps_axes else []))
        axes = range(len(self.kernel))
        return (*shape[:2], *(self._output_size(axis, shape[2 + axis]) for axis in axes))

    def _output_size(self, axis: int, size: int) -> int:
        begin, end = self.pads[axis], self.pads[len(self.kernel) + axis]
        room = size + begin + end - self.dilations[axis] * (self.kernel[axis] - 1) - 1
        stride = self.strides[axis]
        count = (-(-room // stride) if self.has_ceil else room // stride) + 1
        starts_behind = self.has_ceil and (count - 1) * stride >= size + begin
        return max(0, count - 1 if starts_behind else count)


@dataclass(frozen=True)
class PooledConv:
    """outputs = the pool, of windows and without an epilogue, of what the convolution stores."""

    convolution: Conv
    pool: Pool


@dataclass(frozen=True)
class Concat:
    """outputs[0] = the inputs side by side, as floats or, where all are on one grid, as codes.

    Attributes:
        edges: one for each tensor.
        axis: along which they are put; may be negative.
    """

    edges: tuple[tuple[str, int], ...]
    axis: int


@dataclass(frozen=True)
class Resize:
    """outputs = epilogue(x resized along its spatial axes).

    Attributes:
        x: edge, as in Gemm; the value is [N, C, *spatial].
        is_nearest: output i is input floor(i / scale), at whole scales; otherwise pixels are interpolated.
        scales: one per spatial axis.
        has_corners: interpolation maps first and last pixels onto each other; otherwise the images' borders.
        epilogue: as in Pool; operand 0 is what was moved, or interpolated.
    """

    x: tuple[str, int]
    is_nearest: bool
    scales: tuple[float, ...]
    has_corners: bool
    epilogue: Expression

    def output_size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result's spatial axes, from those of x."""
        return tuple(int(n * scale) for n, scale in zip(size, self.scales, strict=True))


@dataclass(frozen=True)
class ResizedConv:
    """outputs = the convolution of what the resize, nearest and without an epilogue, makes of x."""

    resize: Resize
    convolution: Conv


@dataclass(frozen=True)
class GroupNorm:
    """outputs = epilogue((x + shift - mean) / sqrt(variance + epsilon)) over groups of channels of an image.

    Attributes:
        x: edge, as in Gemm; the value is [N, C, *spatial].
        shift: the edge of what is added to x, [N or 1, C, 1, ...], the value of `Region.inputs[1]`; None
            where nothing is.
        channels: C, a multiple of the groups; as many groups are instance normalization.
        epilogue: operand 0 is the accumulator, x normalized. Constants have C elements, or one for each
            group, and run along axis 1; tensors have the shape of x, or one element for each channel of an
            image: [N or 1, C, 1, ...].
    """

    x: tuple[str, int]
    shift: tuple[str, int] | None
    groups: int
    channels: int
    epsilon: float
    epilogue: Expression


@dataclass(frozen=True)
class Rows:
    """outputs = expression(inputs), element by element, with reductions over the last axis at most.

    Attributes:
        channels_last: axis 1 of the outputs lies innermost in memory, as convolutions want it; not with
            reductions. Otherwise the axes lie as those of the first input of full shape.
    """

    expression: Expression
    channels_last: bool = False


@dataclass(frozen=True)
class Attention:
    """outputs[0] = softmax(masked(scale * q @ k^T)) @ v; q [B, H, S, D], k [B, G, T, D], v [B, G, T, E].

    Every head of k and v serves H / G heads of q. Inputs of the region: q, k, v, and the mask where there is
    one that is no constant; it broadcasts to [B, H, S, T]. A query that may see no key gives zeros. Of packed
    samples (see tactics/cuda/padding) the fourth input are int32 offsets [B + 1].

    Attributes:
        edges: of q, k and v.
        scale: of the scores.
        is_transposed: k is [B, G, D, T], as exported; otherwise [B, G, T, D].
        has_mask: whether inputs[3] is a mask.
        mask_kind: "added" to the scores (floats), or truths: keys that are "kept", or "dropped".
        mask_value: what the scores of keys that are not kept, or dropped, become.
        mask_constant: name of the constant that is the mask; empty where inputs[3] is, or none is.
        is_causal: a query sees the keys up to its own place, counted from the first of each.
        epilogue: of the result, operand 0; its other operands are scalars.
        is_packed: of the B S tokens, counted sample by sample, those from offsets[b] to offsets[b + 1] are
            sample b, whose queries see its keys alone; what is behind offsets[B] is undefined. No mask.
    """

    edges: tuple[tuple[str, int], ...]
    scale: float
    is_transposed: bool
    has_mask: bool
    mask_kind: str = "added"
    mask_value: float = -math.inf
    mask_constant: str = ""
    is_causal: bool = False
    epilogue: Expression = IDENTITY
    is_packed: bool = False


@dataclass(frozen=True)
class LinearAttention:
    """outputs[0] = relu(q) (relu(k)^T v) / (relu(q) sum(relu(k)) + epsilon), sums over all tokens.

    q [B, H, S, D], k [B, H, T, D] and v [B, H, T, E] are floats, the result [B, H, S, E] is too.

    Attributes:
        edges: of q, k and v.
    """

    edges: tuple[tuple[str, int], ...]
    epsilon: float


@dataclass(frozen=True)
class View:
    """One node that moves elements of inputs[0] without changing them, on codes as on floats.

    By new sizes and strides where that is possible: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Slice,
    Split, Expand, Identity. Its other inputs are constants or host values.
    """


@dataclass(frozen=True)
class Host:
    """Nodes that compute shapes: their inputs are constants, sizes of tensors, or other host values.

    They run on the CPU, once per set of input shapes. Of other inputs than host values the shape is read.
    """


@dataclass(frozen=True)
class Nodes:
    """Nodes without a formula, run operator by operator.

    Attributes:
        reads_values: the result's shape or the host's course depends on values on the device (NonZero, If,
            Loop, a Reshape to a computed shape), so that it cannot be part of a CUDA graph.
    """

    reads_values: bool = False


Formula = (
    Gemm
    | Conv
    | ConvTranspose
    | Pool
    | PooledConv
    | Resize
    | ResizedConv
    | GroupNorm
    | Concat
    | Rows
    | Attention
    | LinearAttention
    | View
    | Host
    | Nodes
)


@dataclass(frozen=True)
class Mismatch:
    """A fusion that did not happen.

    Attributes:
        pattern: what was tried, such as "epilogue", "attention", "layer norm".
        reason: one phrase.
        node: the node it failed at.
    """

    pattern: str
    reason: str
    node: str


@dataclass(frozen=True)
class Region:
    """Nodes that one kernel computes.

    Attributes:
        name: of its anchor node; unique.
        nodes: names of its nodes, in topological order.
        inputs: names of the activations and host values it reads: no constants, each once. The order is the
            formula's: for all but Rows and Attention x first, then tensor operands in their order. What its
            nodes read and the formula does not is left out.
        outputs: names of the values that other regions, or the model's outputs, read.
    """

    name: str
    formula: Formula
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Regions:
    """The nodes of a graph that its outputs come from, each in one region, in an order in which they can run.

    Attributes:
        host_values: names of the values that live on the CPU.
    """

    regions: tuple[Region, ...]
    mismatches: tuple[Mismatch, ...]
    host_values: frozenset[str]
