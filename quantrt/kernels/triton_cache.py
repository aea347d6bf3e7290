# SPDX-License-Identifier: Apache-2.0
"""Where Triton keeps what it compiled. It compiles nothing where it cannot write there.

A container's user often has no home, or a read-only one; a folder that goes with the process serves as well.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from quantrt.ir.scratch import scratch_folder

__all__ = ["triton_cache"]

log = logging.getLogger(__name__)

PROBE_BYTES = 1 << 20
"""More than most kernels take: a full disk is noticed, too."""


def triton_cache(environment: Mapping[str, str], stack: ExitStack) -> Path:
    """The folder that Triton would take, or one that is gone with `stack` where that cannot be written.

    Raises:
        DeviceError: there is no place for temporary files either.
    """
    usual = environment.get("TRITON_CACHE_DIR")
    folder = Path(usual) if usual else Path(environment.get("TRITON_HOME") or "~") / ".triton" / "cache"
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        reason = getattr(error, "strerror", None) or str(error)
        log.info("'%s' cannot be written (%s): compiled kernels are not kept there", folder, reason)
        return stack.enter_context(scratch_folder())
    return folder
