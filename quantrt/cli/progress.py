# SPDX-License-Identifier: Apache-2.0
"""Progress bars of the command line."""

from __future__ import annotations

from quantrt.report.progress import Bars, progress_bars

__all__ = ["Bars", "progress_bars"]
