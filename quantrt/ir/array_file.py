# SPDX-License-Identifier: Apache-2.0
"""Arrays by name in a .npz file, written wholly or not at all."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.ir.atomic import replace_file

if TYPE_CHECKING:
    import numpy as np

__all__ = ["write_arrays"]


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a .npz file, one entry per array, uncompressed.

    As `numpy.savez`, whose keyword arguments would not take an array called "file". Text that libraries give
    as Python objects is written as numpy's own, which is read without pickle.

    Raises:
        DeviceError: the disk is full or the folder may not be written to.
    """
    import numpy as np  # heavy: the command line names this file before it runs anything

    with replace_file(path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                array = array.astype(np.str_) if array.dtype == np.object_ else np.asanyarray(array)
                np.lib.format.write_array(entry, array, allow_pickle=False)
