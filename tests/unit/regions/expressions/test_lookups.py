# SPDX-License-Identifier: Apache-2.0
"""Embeddings are read where their rows are needed."""

import numpy as np
import pytest

from quantrt.regions.region import Nodes, Rows
from tests.unit.regions.check_partition import Partitioned, check_values, partitioned

ROUNDING = 2e-6  # float32's, over some ten operations

IDS = "int64[B,S] ids, int64[B,S] types"
SUM_AND_NORM = """word = Gather(words, ids) type = Gather(kinds, types) s = Add(word, type)
                  q = Add(s, places) y = LayerNormalization<axis=-1>(q, g, b)"""


def tables(rng: np.random.Generator, columns: int = 24) -> dict[str, np.ndarray]:
    sizes = {
        "words": (50, columns),
        "kinds": (2, columns),
        "places": (5, columns),
        "g": columns,
        "b": columns,
    }
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}


def numbers(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Row numbers of both signs."""
    return {"ids": rng.integers(-50, 50, (3, 5)), "types": rng.integers(0, 2, (3, 5))}


def lookups_of(found: Partitioned) -> list[str]:
    expression = found.only(Rows).formula.expression
    return [expression.operands[number].name for number in expression.lookups]


@pytest.mark.parametrize("columns", [1, 7, 24])
def test_embeddings_their_sum_and_its_norm_are_one_region(columns: int, rng: np.random.Generator):
    found = partitioned(SUM_AND_NORM, inputs=IDS, weights=tables(rng, columns))
    assert found.kinds() == ["Rows: Gather Gather Add Add LayerNormalization"]
    assert found.only(Rows).inputs == ("ids", "types")
    assert lookups_of(found) == ["words", "kinds"]
    check_values(found, numbers(rng), tolerance=ROUNDING)


def test_one_embedding_alone_is_a_region(rng: np.random.Generator):
    found = partitioned(
        "y = Gather<axis=-2>(words, ids)",
        inputs="int32[S] ids",
        weights={"words": tables(rng)["words"]},
    )
    assert found.kinds() == ["Rows: Gather"]
    check_values(found, {"ids": np.array([3, 0, -1, 49, -50], np.int32)}, tolerance=0.0)


def test_two_tables_by_the_same_numbers_and_one_table_by_two(rng: np.random.Generator):
    weights = tables(rng)
    found = partitioned(
        "a = Gather(words, ids) c = Gather(others, ids) d = Gather(words, types) s = Sub(a, c) y = Mul(s, d)",
        inputs=IDS,
        weights={"words": weights["words"], "others": -2 * weights["words"]},
    )
    assert lookups_of(found) == ["words", "others", "words"]
    check_values(found, numbers(rng), tolerance=ROUNDING)


def test_what_is_no_embedding_stays_a_node(rng: np.random.Generator):
    weights = {"words": tables(rng)["words"], "cube": np.zeros((3, 4, 5), np.float32)}
    cases = {
        "y = Gather<axis=1>(words, ids)": ("int64[S] ids", ("words",)),
        "y = Gather(cube, ids)": ("int64[S] ids", ("cube",)),
        "y = Gather(x, ids)": ("int64[S] ids, float[7,3] x", ()),
    }
    for body, (inputs, names) in cases.items():
        found = partitioned(body, inputs=inputs, weights={name: weights[name] for name in names})
        assert isinstance(found.only(Nodes).formula, Nodes)


def test_more_tables_than_a_kernel_has_operands_for_are_several_regions(rng: np.random.Generator):
    """Each may turn out to have scales of its own."""
    names = [f"t{i}" for i in range(6)]
    body = " ".join(f"e{i} = Gather({name}, i{i})" for i, name in enumerate(names))
    body += " s1 = Add(e0, e1) s2 = Add(s1, e2) s3 = Add(s2, e3) s4 = Add(s3, e4) y = Add(s4, e5)"
    found = partitioned(
        body,
        inputs=", ".join(f"int64[S] i{i}" for i in range(6)),
        weights={name: rng.standard_normal((9, 4)).astype(np.float32) for name in names},
    )
    assert len(found.regions.regions) > 1
    assert any("12 operands" in reason for reason in found.reasons("rows"))
    feeds = {f"i{i}": rng.integers(0, 9, 5) for i in range(6)}
    check_values(found, feeds, tolerance=ROUNDING)
