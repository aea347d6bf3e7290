# SPDX-License-Identifier: Apache-2.0
"""Random samples, to time a model or see it run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quantrt.calibrate.casts import numpy_dtype
from quantrt.calibrate.records import Array, Layout, Record
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["free_size", "random_records", "random_values"]

IMAGE_SIZE = 224
"""For free height and width of a 4-D input: what most image networks were trained at."""
SEQUENCE_SIZE = 128
"""For any other free axis after the first: the usual length in latency figures of text encoders."""
WHOLE_NUMBER_END = 2
"""Whole numbers are 0 or 1: token ids, masks and token types all accept these."""


def random_records(specs: Sequence[TensorSpec], layout: Layout, count: int, seed: int) -> Iterator[Record]:
    """`count` samples; sample i is the same for any count.

    A symbol has one size in all inputs.

    Raises:
        UsageError: an input has text or an unknown rank.
    """
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        arrays = {spec.name: _random_array(spec, layout, rng) for spec in specs}
        yield Record(f"random sample {index}", arrays)


def _random_array(spec: TensorSpec, layout: Layout, rng: np.random.Generator) -> Array:
    if spec.shape is None or spec.dtype == "string":
        raise UsageError(
            f"cannot make random data for input {spec}",
            hint="real samples: --calib-data of a build, else --data",
        )
    shape = list(spec.shape[1:] if layout.is_batched else spec.shape)
    sizes = [dim if isinstance(dim, int) else free_size(spec) for dim in shape]
    if not layout.is_batched and shape and not isinstance(shape[0], int):
        sizes[0] = 1
    return random_values(spec.dtype, sizes, rng)


def random_values(dtype_name: str, sizes: Sequence[int], rng: np.random.Generator) -> Array:
    """Values that most models accept: standard normal floats, whole numbers 0 and 1, uint8 of pictures."""
    dtype = numpy_dtype(dtype_name)
    if dtype.kind in "iub":
        end = 256 if dtype == np.uint8 else WHOLE_NUMBER_END
        return rng.integers(0, end, sizes).astype(dtype)
    return rng.standard_normal(sizes, np.float32).astype(dtype)


def free_size(spec: TensorSpec) -> int:
    """The size of a free axis that is not the batch's."""
    return IMAGE_SIZE if spec.shape is not None and len(spec.shape) == 4 else SEQUENCE_SIZE
