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
"""Threads look for work for a millisecond after a run, instead of a million times: that is 36 ms of a core on
an AMD EPYC (Zen 5), which whatever comes next is without. Runs that follow each other take as long as before
(ResNet-8 in int8, 0.096 ms: 0.999 of the time, 0.988 to 1.5 on 2 busy cores)."""

WAIT_ASLEEP = ("session.intra_op.allow_spinning", "0")
"""Threads without work leave their core to others, such as what counts the values of a run. Of ResNet-50 on
two shared cores of an AMD EPYC (Zen 5) a run takes 54 ms of their time, and 96 where threads spin."""
