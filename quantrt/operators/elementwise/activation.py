# SPDX-License-Identifier: Apache-2.0
"""Activation functions, element by element, in the type of their input."""

from __future__ import annotations

import torch
from torch.nn import functional

from quantrt.errors import ModelError
from quantrt.operators.elementwise.arithmetic import maximum, minimum
from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "celu",
    "clip",
    "clip_by_attributes",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "mish",
    "parametric_softplus",
    "prelu",
    "prelu_per_channel",
    "relu",
    "scaled_tanh",
    "selu",
    "shrink",
    "softplus",
    "softsign",
    "swiglu",
    "swish",
    "thresholded_relu",
]

_FLOAT32_MAX = 3.4028234663852886e38


def relu(x: torch.Tensor) -> torch.Tensor:
    """max(x, 0)."""
    return torch.clamp(x, min=0)


def leaky_relu(x: torch.Tensor, *, alpha: float = 0.01) -> torch.Tensor:
    """x, or alpha * x below 0."""
    return torch.where(x < 0, x * alpha, x)


def prelu(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """x, or slope * x below 0; the slope broadcasts to x."""
    return torch.where(x < 0, x * slope, x)


def prelu_per_channel(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Opset 6: a slope of shape [C] belongs to axis 1 of x."""
    if slope.dim() == 1 and slope.numel() > 1:
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))
    return prelu(x, slope)


def elu(x: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """x, or alpha * (exp(x) - 1) below 0."""
    return torch.where(x < 0, alpha * torch.expm1(x), x)


def selu(
    x: torch.Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> torch.Tensor:
    """gamma * x, or gamma * alpha * (exp(x) - 1) at and below 0."""
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


def celu(x: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return torch.clamp(x, min=0) + torch.clamp(alpha * torch.expm1(x / alpha), max=0)


def hard_sigmoid(x: torch.Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> torch.Tensor:
    """alpha * x + beta, held between 0 and 1."""
    return torch.clamp(alpha * x + beta, 0, 1)


def hard_swish(x: torch.Tensor) -> torch.Tensor:
    """x * clamp(x / 6 + 1/2, 0, 1)."""
    return x * hard_sigmoid(x, alpha=1 / 6)


def scaled_tanh(x: torch.Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> torch.Tensor:
    """alpha * tanh(beta * x); experimental in ONNX 1.0 to 1.4 and still written by old exporters."""
    return alpha * torch.tanh(beta * x)


def softplus(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(x)), without the overflow."""
    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))


def parametric_softplus(x: torch.Tensor, *, alpha: float, beta: float) -> torch.Tensor:
    """alpha * log(1 + exp(beta * x)); experimental in ONNX 1.0 to 1.4."""
    return alpha * softplus(beta * x)


def softsign(x: torch.Tensor) -> torch.Tensor:
    """x / (1 + |x|)."""
    return x / (1 + x.abs())


def thresholded_relu(x: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """x above alpha, 0 elsewhere."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


def mish(x: torch.Tensor) -> torch.Tensor:
    """x * tanh(softplus(x))."""
    return x * torch.tanh(softplus(x))


def gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x * P(a normal number is below x), by erf or by its tanh approximation."""
    if approximate not in ("none", "tanh"):
        raise ModelError("unknown approximation of Gelu", got=approximate, expected="none or tanh")
    return functional.gelu(x, approximate=approximate)


def swish(x: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """x * sigmoid(alpha * x)."""
    return x * torch.sigmoid(alpha * x)


def swiglu(a: torch.Tensor, b: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """a * sigmoid(alpha * a) * b."""
    return swish(a, alpha=alpha) * b


def shrink(x: torch.Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> torch.Tensor:
    """x + bias below -lambd, x - bias above lambd, 0 between; integers lose the fraction of the result."""
    wide = x if x.is_floating_point() else x.to(torch.float64)
    outside = torch.where(wide < -lambd, wide + bias, wide - bias)
    return torch.where(wide.abs() > lambd, outside, torch.zeros_like(wide)).to(x.dtype)


def clip(x: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None) -> torch.Tensor:
    """x held between the scalars low and high; high wins where they cross."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def clip_by_attributes(
    x: torch.Tensor,
    *,
    min: float = -_FLOAT32_MAX,
    max: float = _FLOAT32_MAX,
) -> torch.Tensor:
    """Opset 6: x held between two numbers, of which those beyond its type's range do nothing."""
    limits = torch.finfo(x.dtype)
    x = x.clamp(min=min) if min > limits.min else x
    return x.clamp(max=max) if max < limits.max else x


OPERATORS = (
    Operator("Relu", 6, relu),
    Operator("LeakyRelu", 6, leaky_relu),
    Operator("PRelu", 6, prelu_per_channel, until=6),
    Operator("PRelu", 7, prelu),
    Operator("Elu", 6, elu),
    Operator("Selu", 6, selu),
    Operator("Celu", 12, celu),
    Operator("Sigmoid", 6, torch.sigmoid),
    Operator("HardSigmoid", 6, hard_sigmoid),
    Operator("HardSwish", 14, hard_swish),
    Operator("Tanh", 6, torch.tanh),
    Operator("ScaledTanh", 1, scaled_tanh),
    Operator("Softplus", 1, softplus),
    Operator("ParametricSoftplus", 1, parametric_softplus),
    Operator("Softsign", 1, softsign),
    Operator("ThresholdedRelu", 10, thresholded_relu),
    Operator("Mish", 18, mish),
    Operator("Gelu", 20, gelu),
    Operator("Swish", 24, swish),
    Operator("SwiGLU", 28, swiglu),
    Operator("Shrink", 9, shrink),
    Operator("Clip", 6, clip_by_attributes, until=10),
    Operator("Clip", 11, clip),
)
