# SPDX-License-Identifier: Apache-2.0
"""A convolution of x with every pixel repeated as several smaller ones of x itself, one for each phase.

Output lines p R + i, for one i below R, all see the same lines of x with the same parts of the window:

    y[p R + i] = sum over k of w[k] x[floor((p R + i + k D - begin) / R)]
               = sum over t of v_i[t] x[p + floor((i - begin) / R) + t]

with v_i[t] the sum of the w[k] that meet there, and columns likewise. So a window of 3x3 over pixels that are
doubled is one of 2x2 with weights of its own in each of four phases: 4 products for 9. Sums of weights are
rounded where they are stored in 16 bits; those of few codes are exact there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quantrt.kernels.conv2d.spec import ConvProblem

__all__ = ["Axis", "Phases", "axis_of", "phases_of"]


@dataclass(frozen=True)
class Axis:
    """The phases of one axis.

    Attributes:
        taps, begin, end: of the windows of every phase, and their padding.
        lead: phase i begins (i + lead) // repeats pixels further on.
        places: [phase][tap of the whole window]: the tap of the phase that meets the same pixel.
    """

    taps: int
    begin: int
    end: int
    lead: int
    places: tuple[tuple[int, ...], ...]

    @property
    def most(self) -> int:
        """Taps of the window that meet one pixel, at most."""
        return max(phase.count(place) for phase in self.places for place in phase)


def axis_of(taps: int, dilation: int, pads: tuple[int, int], repeats: int) -> Axis | None:
    """The phases of an axis in steps of one; None where some have a pixel less than others.

    Args:
        pads: begin and end, in repeated pixels.
    """
    before, behind = pads
    growth = before + behind - dilation * (taps - 1)
    if growth % repeats:
        return None
    met = [[(i + k * dilation - before) // repeats for k in range(taps)] for i in range(repeats)]
    width = max(pixels[-1] - pixels[0] for pixels in met) + 1
    begin = -(-before // repeats)
    places = tuple(tuple(pixel - pixels[0] for pixel in pixels) for pixels in met)
    return Axis(width, begin, growth // repeats - begin + width - 1, begin * repeats - before, places)


@dataclass(frozen=True)
class Phases:
    """The phases of a convolution, all of one size.

    Attributes:
        problem: of one of them, on x as it is.
        repeats: lines and columns of phases.
        axes: vertical, horizontal.
    """

    problem: ConvProblem
    repeats: tuple[int, int]
    axes: tuple[Axis, Axis]

    @property
    def most_taps(self) -> int:
        """Of the window, whose weights are summed."""
        return self.axes[0].most * self.axes[1].most

    @property
    def leads(self) -> tuple[int, int]:
        """Of both axes."""
        return self.axes[0].lead, self.axes[1].lead

    @property
    def every(self) -> ConvProblem:
        """A convolution of as many tiles: of so many times the images."""
        return replace(self.problem, images=self.problem.images * self.repeats[0] * self.repeats[1])


def phases_of(problem: ConvProblem) -> Phases | str:
    """The phases of a convolution of repeated pixels; why there are none, in one phrase."""
    if problem.strides != (1, 1) or problem.repeats == (1, 1):
        return "no convolution of repeated pixels in steps of one"
    top, left, bottom, right = problem.pads
    vertical = axis_of(problem.R, problem.dilations[0], (top, bottom), problem.repeats[0])
    horizontal = axis_of(problem.S, problem.dilations[1], (left, right), problem.repeats[1])
    if vertical is None or horizontal is None:
        return "phases of different sizes"
    if vertical.taps * horizontal.taps >= problem.R * problem.S:
        return "no tap of its window that meets the same pixel as another"
    one = replace(
        problem,
        R=vertical.taps,
        S=horizontal.taps,
        pads=(vertical.begin, horizontal.begin, vertical.end, horizontal.end),
        dilations=(1, 1),
        repeats=(1, 1),
    )
    return Phases(one, problem.repeats, (vertical, horizontal))
