# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a phase lie: every PHASES[0]-th line and PHASES[1]-th column of the output, one tile of
BLOCK_M rows behind the other, and the tiles of one phase behind those of the one before it.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.epilogue import pitch_of

__all__ = ["first_row", "further_on", "has_repeats", "moved", "steps_of"]


@triton.constexpr_function
def has_repeats(repeats):
    """Whether a pixel of x is more than one of what is convolved, or there is more than one phase."""
    return repeats is not None and any(n > 1 for n in repeats)


@triton.jit
def first_row(tile_m, M, BLOCK_M: tl.constexpr, PHASES: tl.constexpr):
    """The phase of a tile, counted line by line, and the first of its rows among the M of the phase."""
    if has_repeats(PHASES):
        tiles_m = tl.cdiv(M, BLOCK_M)
        return tile_m // tiles_m, tile_m % tiles_m * BLOCK_M
    return 0, tile_m * BLOCK_M


@triton.jit
def steps_of(phase, PHASES: tl.constexpr, LEADS: tl.constexpr):
    """By how many lines and columns the windows of a phase begin further on."""
    down = (phase // PHASES[1] + LEADS[0]) // PHASES[0]
    return down, (phase % PHASES[1] + LEADS[1]) // PHASES[1]


@triton.jit
def further_on(rows, phase, Q, PHASES: tl.constexpr):
    """How many pixels behind the place of its number (int64) a row of a phase is stored."""
    start = phase // PHASES[1] * (PHASES[1] * Q) + phase % PHASES[1]
    return (rows // Q).to(tl.int64) * (PHASES[0] * PHASES[1] * Q) + rows % Q * PHASES[1] + start - rows


@triton.jit
def moved(
    pointers, further, kinds: tl.constexpr, FIRST: tl.constexpr, PITCHES: tl.constexpr, N: tl.constexpr
):
    """Pointers of images, each for every row of a tile as many pixels further on; others as they are.

    Args:
        kinds: of the operands; of outputs anything else.
        FIRST: the place of the first of them among PITCHES.
    """
    found = ()
    for i in tl.static_range(len(pointers)):
        if i < len(kinds) and _is_image(kinds, i):
            step: tl.constexpr = pitch_of(PITCHES, FIRST + i, N)
            found = found + (pointers[i] + (further * step)[:, None],)
        else:
            found = found + (pointers[i],)
    return found


@triton.constexpr_function
def _is_image(kinds, number):
    """Whether it is an operand of the output's shape, or an output."""
    return kinds[number] not in ("constant", "scalar", "row")
