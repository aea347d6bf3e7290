# SPDX-License-Identifier: Apache-2.0
"""One batch to time runs with, and its options: the first of --data, or random values of --shape."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source, open_data
from quantrt.cli.options.shapes import given_shapes, parse_shape, with_shapes
from quantrt.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from quantrt.calibrate.records import Layout
    from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["add_timed_inputs", "timed_inputs"]


def add_timed_inputs(parser: argparse._ActionsContainer, *, with_batch: bool = True) -> None:
    """Add --data, --preprocess, --shape and --batch.

    Args:
        with_batch: False for a command that has a --batch already.
    """
    parser.add_argument(
        "--data", type=data_source, metavar="P", help=f"real inputs (default: random): {DATA_HELP}"
    )
    add_preprocess(parser)
    parser.add_argument(
        "--shape",
        action="append",
        type=parse_shape,
        metavar="NAME=1x384",
        help="shape of a random input with free sizes, repeatable",
    )
    if with_batch:
        parser.add_argument(
            "--batch",
            type=int,
            metavar="N",
            help="samples per run, where the batch is free (default: what the engine was timed at)",
        )


def timed_inputs(
    args: argparse.Namespace,
    specs: Sequence[TensorSpec],
    name: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    otherwise: str = ", or --data with real inputs",
) -> tuple[dict[str, np.ndarray], int]:
    """The batch, and its size.

    Args:
        args: with data, shape, preprocess and batch.
        specs: what the model takes.
        name: of its file.
        shapes: that an engine was chosen at: those of random inputs where no sizes are given, in the batch
            that is, and the batch of data. Without any a batch is of one.
        otherwise: what else there is to try where a size is not given.

    Raises:
        UsageError: a free size is not given, the batch is below 1, or the model takes another one only.
        DataError: the data do not fit, or are too few for a batch.
    """
    from quantrt.calibrate.dataset import random_dataset

    if args.batch is not None and args.batch < 1:
        raise UsageError(
            "cannot use this batch size", got=str(args.batch), expected="at least 1", hint="--batch 1"
        )
    own = _in_batches(shapes or {}, specs, args.batch)
    if args.data is None:
        sizes = given_shapes(args.shape) or own
        dataset = random_dataset(with_shapes(specs, sizes, name, otherwise=otherwise), args.batch or 1, 0)
    else:
        dataset = open_data(args.data, specs, preprocess=args.preprocess)
    fixed = dataset.layout.fixed_batch
    if fixed is not None and args.batch not in (None, fixed):
        raise UsageError(
            f"'{name}' takes batches of {fixed} only", got=f"--batch {args.batch}", hint=f"--batch {fixed}"
        )
    batch = fixed or args.batch or _batch_of(own, dataset.layout)
    first = next(iter(dataset.batches(batch, batch)))
    if fixed is None and first.count < batch:
        raise DataError(
            f"cannot make a batch of {batch} for '{name}'",
            got=f"{first.count} samples of one shape",
            hint=f"--batch {first.count}",
        )
    return first.inputs, batch


def _in_batches(
    shapes: Mapping[str, tuple[int, ...]], specs: Sequence[TensorSpec], batch: int | None
) -> dict[str, tuple[int, ...]]:
    """The shapes with so many samples; None: as they are. None where a first axis does not count samples."""
    if batch is None:
        return dict(shapes)
    if not shapes or not all(spec.shape and not isinstance(spec.shape[0], int) for spec in specs):
        return {}
    return {name: (batch, *shape[1:]) for name, shape in shapes.items()}


def _batch_of(shapes: Mapping[str, tuple[int, ...]], layout: Layout) -> int:
    """The samples in inputs of these shapes; 1 where their first axes do not count samples."""
    sizes = {shape[0] for shape in shapes.values() if shape}
    return sizes.pop() if layout.is_batched and len(sizes) == 1 else 1
