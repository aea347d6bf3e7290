# SPDX-License-Identifier: Apache-2.0
import math
from itertools import product

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.kernels.rows.walk import View, Walk, iteration_shape, make_walk, memory_order


def contiguous(*shape: int) -> View:
    return View(shape, tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))


def image(n: int, c: int, h: int, w: int) -> View:
    """Channels innermost."""
    return View((n, c, h, w), (h * w * c, 1, w * c, c))


def walk(*views: View, has_rows: bool = False) -> Walk:
    """As the first of the views lies."""
    shape = iteration_shape([view.shape for view in views])
    order = range(len(shape)) if has_rows else memory_order(views[0])
    return make_walk(shape, views, order=order, has_rows=has_rows)


def test_tensors_of_one_layout_are_one_row() -> None:
    assert walk(contiguous(2, 3, 5), contiguous(2, 3, 5)) == Walk((), 30, ((1,), (1,)))
    assert walk(image(2, 3, 4, 5), image(2, 3, 4, 5)) == Walk((), 120, ((1,), (1,)))


def test_a_constant_of_channels_makes_rows_of_channels() -> None:
    found = walk(image(2, 8, 4, 5), contiguous(8, 1, 1))
    assert found == Walk((40,), 8, ((8, 1), (0, 1)))


def test_a_gate_of_channels_differs_by_image() -> None:
    found = walk(image(2, 8, 4, 5), contiguous(2, 8, 1, 1))
    assert found == Walk((2, 20), 8, ((160, 8, 1), (8, 0, 1)))


def test_rows_keep_their_axis() -> None:
    assert walk(contiguous(2, 3, 5), contiguous(5), has_rows=True) == Walk((6,), 5, ((5, 1), (0, 1)))
    assert walk(contiguous(6, 1), has_rows=True) == Walk((6,), 1, ((1, 0),))
    assert walk(contiguous(5), has_rows=True) == Walk((), 5, ((1,),))


def test_elements_without_dimensions() -> None:
    assert walk(View((), ())) == Walk((), 1, ((0,),))
    assert walk(View((), ()), has_rows=True) == Walk((), 1, ((0,),))
    assert walk(contiguous(1, 1), contiguous(1)) == Walk((), 1, ((0,), (0,)))


def test_a_row_is_not_longer_than_a_number_of_32_bits() -> None:
    assert walk(contiguous(4, 2**29)) == Walk((4,), 2**29, ((2**29, 1),))
    assert walk(contiguous(2, 2**29)) == Walk((), 2**30, ((1,),))


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_walk_visits_every_element_of_every_operand_in_order(
    has_rows: bool, rng: np.random.Generator
) -> None:
    """Against numpy, on random strides and broadcasts."""
    for _ in range(50):
        rank = int(rng.integers(1, 5))
        shape = tuple(int(size) for size in rng.integers(1, 4, rank))
        arrays = [_random_view(shape, rng) for _ in range(2)] + [np.arange(math.prod(shape)).reshape(shape)]
        views = [View(a.shape, tuple(step // a.itemsize for step in a.strides)) for a in arrays]
        found = make_walk(shape, views, order=range(rank), has_rows=has_rows)
        for array, view, strides in zip(arrays, views, found.strides, strict=True):
            sizes = (*found.outer, found.columns)
            places = [
                sum(i * step for i, step in zip(index, strides, strict=True))
                for index in product(*map(range, sizes))
            ]
            offsets = np.lib.stride_tricks.as_strided(
                np.arange(10_000), view.shape, [8 * step for step in view.strides]
            )
            assert places == np.broadcast_to(offsets, shape).ravel().tolist()
            assert array.size <= len(places)


def _random_view(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array that broadcasts to `shape`: axes left out, of size 1, or permuted in memory."""
    own = [1 if rng.random() < 0.3 else size for size in shape][int(rng.integers(0, len(shape))) :]
    order = rng.permutation(len(own))
    array = np.zeros([own[axis] for axis in order], np.int8)
    return array.transpose(np.argsort(order))


def test_the_order_of_axes_in_memory() -> None:
    assert memory_order(image(2, 8, 4, 5)) == (0, 2, 3, 1)
    assert memory_order(View((2, 8, 4, 5), (320, 1, 80, 16))) == (0, 2, 3, 1)  # every other channel of 16
    assert memory_order(contiguous(2, 8, 4, 5)) == (0, 1, 2, 3)
    assert memory_order(View((2, 3, 5, 7), (105, 7, 21, 1))) == (0, 2, 1, 3)  # heads behind positions
    assert memory_order(View((2, 8, 4), (0, 1, 8))) == (0, 1, 2)  # broadcast: as it is


def test_heads_behind_positions_are_one_row() -> None:
    heads = View((2, 3, 5, 7), (105, 7, 21, 1))
    assert walk(heads, heads) == Walk((), 210, ((1,), (1,)))


def test_shapes_broadcast_as_in_numpy() -> None:
    assert iteration_shape([(3, 1), (1, 4), ()]) == (3, 4)
    assert iteration_shape([(0, 1), (1,)]) == (0, 1)
    assert iteration_shape([]) == ()
    with pytest.raises(DataError, match="broadcast"):
        iteration_shape([(3,), (4,)])
