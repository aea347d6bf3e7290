# SPDX-License-Identifier: Apache-2.0
"""The version of this package, where every part of it can read it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
