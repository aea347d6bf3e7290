# SPDX-License-Identifier: Apache-2.0
"""As matmul.py, of a weight [K, N]: as the models have theirs in float32, which nothing then has to move."""

from __future__ import annotations

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Assets, Runner
from quantrt.runtime.cuda.runners.matmul import MatmulRunner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return MatmulRunner(step, assets, is_columns_last=True)
