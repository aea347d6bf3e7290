# SPDX-License-Identifier: Apache-2.0
"""Options of ONNX Runtime's sessions that some models need."""

from __future__ import annotations

__all__ = ["KEEP_FLOATS", "KEEP_PAIRS", "SPIN_BRIEFLY", "WAIT_ASLEEP"]

KEEP_FLOATS = ("optimization.disable_specified_optimizers", "WeightBiasQuantization")
"""Of models whose float products stand between codes; see quantrt.quantize.qdq.requantized."""

KEEP_PAIRS = ("session.disable_quant_qdq", "1")
"""Of float8 codes; otherwise its optimizer puts integer kernels in their place, which refuse them (1.31)
or compute something else (1.32)."""

SPIN_BRIEFLY = ("session.intra_op.spin_duration_us", "1000")
"""Threads look for work for a millisecond after a run, instead of a million times: for so long whatever comes
next is without their core. A run that follows at once still finds them awake."""

WAIT_ASLEEP = ("session.intra_op.allow_spinning", "0")
"""Threads without work leave their core to others, such as what counts the values of a run."""
