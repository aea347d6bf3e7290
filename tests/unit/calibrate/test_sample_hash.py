# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest

from quantrt.calibrate.sample_hash import EMPTY_HASH, add_hashes, hash_sample

SAMPLE = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "m": np.ones(2, np.int64)}
CHANGES = {
    "value": {**SAMPLE, "x": SAMPLE["x"] + np.float32(1e-6)},
    "shape": {**SAMPLE, "x": SAMPLE["x"].reshape(3, 2)},
    "element type": {**SAMPLE, "m": SAMPLE["m"].astype(np.int32)},
    "name": {"y": SAMPLE["x"], "m": SAMPLE["m"]},
    "missing": {"x": SAMPLE["x"]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_a_sample_changes_its_hash(change):
    assert hash_sample(CHANGES[change]) != hash_sample(SAMPLE)


def test_the_order_of_inputs_and_their_memory_layout_do_not_matter():
    turned = {"m": SAMPLE["m"], "x": np.asfortranarray(SAMPLE["x"])}
    assert hash_sample(turned) == hash_sample(SAMPLE)


def test_sums_do_not_depend_on_the_order_and_keep_their_width():
    parts = [hash_sample({"x": np.array([i])}) for i in range(3)]
    sums = {add_hashes(add_hashes(a, b), c) for a, b, c in itertools.permutations(parts)}
    assert len(sums) == 1
    assert {len(text) for text in (*parts, *sums)} == {64}
    assert add_hashes(parts[0], EMPTY_HASH) == parts[0]
    assert add_hashes("f" * 64, f"{1:064x}") == EMPTY_HASH
    assert add_hashes(parts[0], parts[0]) not in (parts[0], EMPTY_HASH)
