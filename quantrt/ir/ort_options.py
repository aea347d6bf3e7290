# SPDX-License-Identifier: Apache-2.0
"""Options of ONNX Runtime's sessions that some models need."""

from __future__ import annotations

__all__ = ["KEEP_FLOATS", "KEEP_PAIRS", "WAIT_ASLEEP"]

KEEP_FLOATS = ("optimization.disable_specified_optimizers", "WeightBiasQuantization")
"""Of models whose float products stand between codes; see quantrt.quantize.requantized."""

KEEP_PAIRS = ("session.disable_quant_qdq", "1")
"""Of float8 codes; otherwise its optimizer puts integer kernels in their place, which refuse them (1.31)
or compute something else (1.32)."""

WAIT_ASLEEP = ("session.intra_op.allow_spinning", "0")
"""Threads without work leave their core to others, such as what counts the values of a run. Of ResNet-50 on
two shared cores of an AMD EPYC (Zen 5) a run takes 54 ms of their time, and 96 where threads spin."""
