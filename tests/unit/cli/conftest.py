# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line leave the process as it was."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored_logger() -> Iterator[None]:
    """The command line sets up the logger of its process; here the process has other tests to run."""
    logger = logging.getLogger("quantrt")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
