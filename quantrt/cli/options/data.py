# SPDX-License-Identifier: Apache-2.0
"""The options that say where data comes from, and the datasets they open."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantrt.calibrate.dataset import Dataset
    from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["DATA_HELP", "add_preprocess", "data_source", "find_local_modules", "open_data"]

DATA_HELP = ".npz, a folder of .npy/.npz files, a folder or zip of images, or module:function"


def data_source(text: str) -> Path:
    """Where data comes from; a type of its own so that shells complete file names for it."""
    return Path(text)


def add_preprocess(parser: argparse._ActionsContainer) -> None:
    """Add --preprocess."""
    parser.add_argument(
        "--preprocess",
        metavar="SPEC",
        help="how images become tensors, such as 'resize=256,crop=224,mean=imagenet', or module:function",
    )


def find_local_modules(reference: str | None) -> None:
    """Let a `module:function` given by the user be found in the present folder too, after other places."""
    here = str(Path.cwd())
    if reference is not None and ":" in reference and here not in sys.path:
        sys.path.append(here)


def open_data(
    path: Path, inputs: Sequence[TensorSpec], *, preprocess: str | None, labels: str | None = None
) -> Dataset:
    """The dataset at `path`.

    Raises:
        DataError: there is nothing at the path, or the data do not fit the inputs.
    """
    from quantrt.calibrate.dataset import open_dataset

    find_local_modules(preprocess)
    return open_dataset(path, inputs, preprocess=preprocess, labels=labels)
