# SPDX-License-Identifier: Apache-2.0
"""Attention over few keys, in codes or in floats, whichever is faster in OpenVINO.

Codes of queries, keys and values are made by kernels of their own where one product makes all three, and
products so small gain little: a ViT of 65 tokens in int8+bf16 takes 0.96 of the time with floats for one
image on one core of an AMD EPYC, and 1.02 for eight; a MiniLM over 96 keys 1.06.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from quantrt.config import QuantizeConfig
from quantrt.quantize.attention import attention_products
from quantrt.quantize.fit import GIVEN_SCALES, OWN_SCALES, Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.tactics.brief_pair import is_surely_faster, least_ms
from quantrt.tactics.candidate import Candidate, Rejected

__all__ = ["MOST_KEYS", "ShortAttention", "with_float_attention"]

MOST_KEYS = 80

MOST_MS = 10.0
"""Of a run: what takes longer spends its time elsewhere, and timing both would take long."""

REASON = "attention over few keys: floats are faster here"


class ShortAttention:
    """Opens engines in codes with short attention in codes or in floats, as was faster for the first of them.

    Args:
        inputs: that are timed.
        config: what models are quantized with.
    """

    def __init__(self, inputs: Mapping[str, np.ndarray], config: QuantizeConfig) -> None:
        self._inputs = inputs
        self._config = config
        self._taken: tuple[Fitted, Fitted] | None = None  # a quantized model, and what is opened for it

    def open(
        self, fitted: Fitted, open_one: Callable[[Fitted], Candidate | Rejected]
    ) -> Candidate | Rejected:
        """What is opened of a quantized model; engines that differ by the type of floats alone are alike."""
        if self._taken is not None and self._taken[0] is fitted:
            return open_one(self._taken[1])
        found = open_one(fitted)
        floats = with_float_attention(fitted, self._config)
        if floats is None or isinstance(found, Rejected):
            return found
        self._taken = fitted, fitted
        run = partial(found.executor.run, self._inputs)
        other = open_one(floats) if least_ms(run) <= MOST_MS else None
        if not isinstance(other, Candidate):
            return found
        if not is_surely_faster(partial(other.executor.run, self._inputs), run):
            other.executor.close()
            return found
        found.executor.close()
        self._taken = fitted, floats
        return other


def with_float_attention(fitted: Fitted, config: QuantizeConfig) -> Fitted | None:
    """The quantized model with short attention in floats; None where none of it is in codes, or has to be."""
    if fitted.floats is None or fitted.method in (GIVEN_SCALES, OWN_SCALES):
        return None
    if config.quantization_level != "auto":
        return None
    short = attention_products(fitted.floats.graph, MOST_KEYS)
    kept = {row.node: REASON for row in fitted.model.placement.decisions if row.is_int8 and row.node in short}
    return keep_float(fitted, kept, config) if kept else None
