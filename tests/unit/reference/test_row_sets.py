# SPDX-License-Identifier: Apache-2.0
"""Rows that a node chose, in an order of their own, held against those that they are nearest to."""

from itertools import permutations

import numpy as np
import pytest

from quantrt.reference.metrics import mean_noise_ratio, noise_ratio
from quantrt.reference.row_sets import RowSet, RowTally, compared_sets, in_rows_of, row_sets
from tests.plans import make_graph

DETECTOR = """detector (float[N,9] scores, float[N,9,4] all)
=> (float[N,5] best, float[N,5,4] boxes, float[N,9] raw)
<int64[1] k = {5}, int64[1] last = {-1}, int64[3] wide = {1, 1, 4}>
{ best, at = TopK(scores, k)
  column = Unsqueeze(at, last)
  columns = Expand(column, wide)
  boxes = GatherElements<axis=1>(all, columns)
  raw = Relu(scores) }"""

SUPPRESSED = """suppressed (float[1,M,4] all, float[1,1,M] scores) => (float[n,4] boxes)
<int64[1] most = {9}, float[1] iou = {0.5}, float[1] least = {0.1}, int64[1] two = {2}, int64[1] three = {3},
 int64[1] one = {1}, int64[1] first = {0}>
{ found = NonMaxSuppression(all, scores, most, iou, least)
  columns = Slice(found, two, three, one)
  at = Squeeze(columns, one)
  flat = Squeeze(all, first)
  boxes = Gather(flat, at) }"""

SET = RowSet("choose", ("scores", "boxes"), 6)


@pytest.fixture
def outputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Two samples of six rows in two outputs, and a third output that is no set."""
    return {
        "scores": rng.normal(size=(2, 6)).astype(np.float32),
        "boxes": rng.normal(size=(2, 6, 4)).astype(np.float32),
        "other": rng.normal(size=(2, 6)).astype(np.float32),
    }


def test_outputs_that_follow_from_a_choice_are_found():
    (found,) = row_sets(make_graph(DETECTOR).graph)
    assert found.outputs == ("best", "boxes")
    assert found.rows == 5


def test_rows_behind_nonmaximum_suppression_are_as_many_as_values_decide():
    (found,) = row_sets(make_graph(SUPPRESSED).graph)
    assert (found.outputs, found.rows) == (("boxes",), None)


def test_a_choice_of_another_number_behind_it_is_no_choice_of_rows():
    """D-FINE takes the best four of the weights that each side of a box is a mean by."""
    text = DETECTOR.replace("boxes = Gather", "chosen = Gather").replace(
        "raw =",
        "kept, where = TopK(chosen, two) ends = Concat<axis=2>(kept, kept) boxes = Identity(ends) raw =",
    )
    (found,) = row_sets(make_graph(text.replace("<int64[1] k", "<int64[1] two = {2}, int64[1] k")).graph)
    assert (found.outputs, found.rows) == (("best", "boxes"), 5)


@pytest.mark.parametrize("k", ["1", "3000"])
def test_one_row_has_no_order_and_thousands_are_not_paired(k: str):
    assert row_sets(make_graph(DETECTOR.replace("k = {5}", f"k = {{{k}}}")).graph) == ()


def test_exchanged_rows_are_no_noise(outputs, rng):
    orders = [rng.permutation(6), rng.permutation(6)]
    exchanged = ((name, [outputs[name][i][order] for i, order in enumerate(orders)]) for name in SET.outputs)
    got = {**outputs, **{name: np.stack(rows) for name, rows in exchanged}}
    tallies = {"choose": RowTally()}
    ordered = in_rows_of(outputs, got, (SET,), tallies)
    for name, array in outputs.items():
        np.testing.assert_array_equal(ordered[name], array)
    moved = sum(int(np.count_nonzero(order != np.arange(6))) for order in orders)
    assert tallies["choose"] == RowTally(rows=12, moved=moved, found=12)
    assert mean_noise_ratio([outputs], [got], (SET,)) == 0.0 < mean_noise_ratio([outputs], [got])


def test_what_is_no_set_keeps_its_order(outputs):
    got = {**outputs, "other": outputs["other"][:, ::-1]}
    np.testing.assert_array_equal(in_rows_of(outputs, got, (SET,))["other"], outputs["other"][:, ::-1])


def test_pairs_have_the_least_noise_of_all_orders(outputs, rng):
    """Against every order that keeps the outputs of a row together, by brute force."""
    ref = {name: array[:1] for name, array in outputs.items()}
    got = {name: array + rng.normal(size=array.shape).astype(np.float32) for name, array in ref.items()}
    ordered = in_rows_of(ref, got, (SET,))

    def noise(arrays):
        return sum(noise_ratio(ref[name], arrays[name]) for name in SET.outputs)

    tried = ({name: got[name][:, list(order)] for name in SET.outputs} for order in permutations(range(6)))
    assert noise(ordered) == pytest.approx(min(map(noise, tried)), rel=1e-9)


def test_another_row_is_told(outputs):
    got = {name: array.copy() for name, array in outputs.items()}
    got["boxes"][0, 2] += 5
    tallies = {"choose": RowTally()}
    in_rows_of(outputs, got, (SET,), tallies)
    (told,) = compared_sets((SET,), tallies)
    assert (told.moved_ratio, told.found_ratio) == (0.0, 11 / 12)
    assert "'scores', 'boxes'" in str(told) and "91.7% are the same within 20 dB" in str(told)


@pytest.mark.parametrize("rows", [3, 4, 6])
def test_fewer_and_more_rows_are_paired_with_those_they_are_nearest_to(rows, rng):
    one = RowSet("suppress", ("boxes",), None)
    ref = {"boxes": rng.normal(size=(4, 4)).astype(np.float32)}
    large = np.concatenate([ref["boxes"], 9 + rng.normal(size=(2, 4)).astype(np.float32)])
    got = {"boxes": large[:rows][::-1]}
    (ordered,) = in_rows_of(ref, got, (one,)).values()
    assert ordered.shape == (max(4, rows), 4)
    np.testing.assert_array_equal(ordered[: min(4, rows)], ref["boxes"][: min(4, rows)])
    np.testing.assert_array_equal(ordered[rows:], np.zeros((max(4 - rows, 0), 4), np.float32))


def test_values_that_are_no_numbers_stay_where_they_are(outputs):
    got = {name: array[:, ::-1].copy() for name, array in outputs.items()}
    got["boxes"][0, 0, 0] = np.nan
    for name, array in in_rows_of(outputs, got, (SET,)).items():
        np.testing.assert_array_equal(array, got[name])
