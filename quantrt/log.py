# SPDX-License-Identifier: Apache-2.0
"""Logs go to stderr; results go to stdout."""

from __future__ import annotations

import logging
import sys

__all__ = ["setup_logging"]


def setup_logging(*, verbose: bool = False, quiet: bool = False) -> None:
    """Send the package's log records to stderr.

    Args:
        verbose: show DEBUG, one line per node; the default is INFO, a few lines per stage.
        quiet: only warnings and errors. `verbose` wins.
    """
    logger = logging.getLogger("quantrt")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(levelname).1s %(name)s: %(message)s" if verbose else "%(message)s")
    )
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    logger.propagate = False
