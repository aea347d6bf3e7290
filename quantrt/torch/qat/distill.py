# SPDX-License-Identifier: Apache-2.0
"""Distillation: the quantized model learns from the float one, on data that need no labels."""

from __future__ import annotations

import torch
from torch.nn import functional

from quantrt.errors import UsageError

__all__ = ["distillation_loss"]


def distillation_loss(
    logits: torch.Tensor, float_logits: torch.Tensor, *, temperature: float = 1.0
) -> torch.Tensor:
    """How far class probabilities are from the float model's.

        T^2 * KL(softmax(float_logits / T) || softmax(logits / T))

    Hinton et al. 2015, arXiv 1503.02531, section 2; T^2 keeps gradients of the same size for every T.

    Args:
        logits: of the prepared module, [batch, classes] or [batch, classes, ...].
        float_logits: of the float module on the same inputs; no gradient goes into them.
        temperature: above 1 the smaller probabilities count for more.

    Returns:
        A number: the mean over samples and positions.

    Raises:
        UsageError: the shapes differ, or the temperature is not positive.
    """
    if logits.shape != float_logits.shape:
        raise UsageError(
            "cannot distil between outputs of different shapes",
            got=str(tuple(logits.shape)),
            expected=str(tuple(float_logits.shape)),
        )
    if not temperature > 0.0:
        raise UsageError("cannot distil at this temperature", got=str(temperature), expected="above 0")
    wanted = functional.log_softmax(float_logits.detach() / temperature, dim=1)
    found = functional.log_softmax(logits / temperature, dim=1)
    divergence = functional.kl_div(found, wanted, reduction="none", log_target=True).sum(dim=1)
    return divergence.mean() * temperature**2
