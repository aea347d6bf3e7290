# SPDX-License-Identifier: Apache-2.0
import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.rows.spec import (
    BLOCK,
    COLUMN,
    ELEMENT,
    LONG_ROWS,
    ROW,
    SCALAR,
    STRIDED,
    WHOLE_ROWS,
    RowsProblem,
    fits,
    kernel_of,
    why_not,
)
from quantrt.kernels.rows.tiles import configs, variants
from quantrt.kernels.rows.walk import Walk
from quantrt.regions.expression import IDENTITY, Expression, Instruction, Operand

H200 = gpu_named("H200")
TENSOR = Operand("tensor", "x")


def norm(rows: int, columns: int, epsilon: float = 1e-5) -> RowsProblem:
    """x / sqrt(mean(x * x) + epsilon) * gamma, to codes."""
    operands = (TENSOR, Operand("constant", "gamma"), Operand("scalar", value=epsilon))
    instructions = (
        Instruction("mul", (0, 0)),
        Instruction("row_mean", (3,)),
        Instruction("add", (4, 2)),
        Instruction("sqrt", (5,)),
        Instruction("div", (0, 6)),
        Instruction("mul", (7, 1)),
        Instruction("quantize", (8, 2)),
    )
    expression = Expression(operands, instructions, (9,), (False,))
    return RowsProblem(expression, ("float16",), ("int8",), Walk((rows,), columns, ((columns, 1), (0, 1))))


def add(walk: Walk) -> RowsProblem:
    expression = Expression((TENSOR, TENSOR), (Instruction("add", (0, 1)),), (2,), (False,))
    return RowsProblem(expression, ("float16", "float16"), ("float16",), walk)


@pytest.mark.parametrize("columns", [1, 7, 41, 129, 768, 4096, 16384, 16385])
@pytest.mark.parametrize("rows", [1, 6304])
def test_tiles_are_few_powers_of_2_that_hold_whole_rows(rows: int, columns: int) -> None:
    tiles = configs(norm(rows, columns), H200)
    assert 1 <= len([tile for tile in tiles if not tile.programs and tile.parts == 1]) <= 5
    assert len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert tile.rows & (tile.rows - 1) == 0 and tile.columns & (tile.columns - 1) == 0
        assert tile.parts * tile.columns >= columns or columns > 16384
        assert tile.num_warps in (1, 2, 4, 8)


def test_programs_share_out_many_rows_that_have_something_in_common() -> None:
    def shared(rows: int, columns: int) -> list[str]:
        return [tile.name for tile in configs(norm(rows, columns), H200) if tile.programs]

    assert shared(12288, 1024) == ["1x1024 w1 p2112", "1x1024 w1 p1584 ahead"]
    assert shared(6304, 768) == ["1x1024 w1 p2112", "1x1024 w1 p1584 ahead"]
    assert not shared(6304, 100), "too few elements for a warp"
    assert not shared(12288, 2048), "too many"
    assert not shared(64, 1024)


def test_rows_of_no_power_of_two_are_held_in_parts() -> None:
    def held(rows: int, columns: int) -> list[str]:
        return [tile.name for tile in configs(norm(rows, columns), H200) if tile.parts > 1]

    assert held(2048, 1280) == ["4x5x256 w4", "8x5x256 w8"]
    assert [tile.name for tile in configs(norm(2048, 1280), H200)] == held(2048, 1280)
    in_turn = ["1x1024 w1 p2112", "1x1024 w1 p1584 ahead"]
    assert [tile.name for tile in configs(norm(8192, 640), H200)] == [*held(8192, 640), *in_turn]
    assert len(configs(norm(6304, 768), H200)) > len(held(6304, 768)) + 1
    assert held(8192, 640) == ["8x5x128 w4", "16x5x128 w8"]
    assert held(6304, 768) == ["4x3x256 w4", "8x3x256 w8"]
    assert held(4, 768) == ["4x3x256 w4"], "no more rows than there are"
    assert not held(6304, 1024)
    assert not held(6304, 1000), "parts of 8"
    assert not held(6304, 1152), "nine parts"
    assert not any(tile.parts > 1 for tile in configs(add(Walk((2048,), 1280, ((1280, 1),) * 2)), H200))


def test_four_wide_rows_read_together_what_they_have_in_common() -> None:
    def tall(problem: RowsProblem) -> bool:
        return any(tile.name.startswith("4x2048 w8") for tile in configs(problem, H200))

    assert tall(norm(2048, 1536))
    assert not tall(norm(512, 1536)), "half of the multiprocessors would have nothing to do"
    assert not tall(add(Walk((2048,), 1280, ((1280, 1), (1280, 1)))))


def test_few_elements_get_small_tiles() -> None:
    few, many = add(Walk((), 768, ((1,), (1,)))), add(Walk((), 1 << 24, ((1,), (1,))))
    assert configs(few, H200)[0].columns < configs(many, H200)[0].columns


def test_variants_go_from_the_shapes_at_hand_to_any() -> None:
    problem = norm(64, 768)
    tile = configs(problem, H200)[0]
    exact, similar, last = variants(problem, tile, tile)
    assert (exact.kinds, exact.outer, exact.mode) == ((BLOCK, COLUMN, SCALAR), 1, WHOLE_ROWS)
    assert kernel_of(problem, exact).aligned == {"x0", "x1", "y0", "x0_s0", "C"}
    assert (similar.kinds, similar.outer) == ((BLOCK, BLOCK, SCALAR), 3)
    assert (last.kinds, last.outer, last.mode) == ((STRIDED, STRIDED, SCALAR), 3, LONG_ROWS)
    assert last.aligned == frozenset()


def test_odd_sizes_are_not_counted_on_to_be_aligned() -> None:
    problem = norm(64, 41)
    tile = configs(problem, H200)[0]
    assert kernel_of(problem, variants(problem, tile, tile)[0]).aligned == {"x0", "x1", "y0"}


def test_kernels_do_not_depend_on_rows_scalars_and_names() -> None:
    tile = configs(norm(64, 768), H200)[0]
    one = [kernel_of(norm(64, 768), x) for x in variants(norm(64, 768), tile, tile)]
    other = [kernel_of(norm(99, 768, 1e-6), x) for x in variants(norm(99, 768, 1e-6), tile, tile)]
    assert one == other


@pytest.mark.parametrize(
    ("kind", "strides", "is_right"),
    [
        (ELEMENT, (0, 0), True),
        (ELEMENT, (8, 0), False),
        (ROW, (8, 0), True),
        (ROW, (8, 1), False),
        (COLUMN, (0, 1), True),
        (COLUMN, (8, 1), False),
        (BLOCK, (8, 1), True),
        (BLOCK, (8, 2), False),
        (STRIDED, (8, 2), True),
    ],
)
def test_which_operands_a_kind_reads(kind: int, strides: tuple[int, int], is_right: bool) -> None:
    constants = {"OUTER": 1, "MODE": LONG_ROWS, "KINDS": (SCALAR, kind), "BLOCK_C": 8}
    assert fits(constants, Walk((4,), 8, (strides,))) == is_right
    assert fits(constants, Walk((4,), 1, ((strides[0], 0),))) == (
        is_right or strides[0] == 0 or kind in (ROW, BLOCK)
    )
    assert not fits(constants, Walk((4, 4), 8, ((64, 8, 1),)))


def test_a_block_holds_no_longer_rows() -> None:
    constants = {"OUTER": 1, "MODE": WHOLE_ROWS, "KINDS": (BLOCK,), "BLOCK_C": 8}
    assert fits(constants, Walk((4,), 8, ((8, 1),)))
    assert not fits(constants, Walk((4,), 9, ((9, 1),)))


def test_why_not() -> None:
    assert why_not(norm(4, 8)) is None
    expression = IDENTITY
    assert (
        why_not(RowsProblem(expression, (), ("float16",), Walk((), 1, ())))
        == "an operand that is an accumulator"
    )
    walk = Walk((), 8, ((1,),))
    many = Expression((TENSOR,), (), (0,) * 5, (False,) * 5)
    assert why_not(RowsProblem(many, ("float16",), ("float16",) * 5, walk)) == "5 outputs: at most 4"
    one = Expression((TENSOR,), (), (0,), (False,))
    assert why_not(RowsProblem(one, ("float16",), ("int64",), walk)) == "outputs of int64"
