# SPDX-License-Identifier: Apache-2.0
"""Two calibrations side by side: as figures, and as a picture."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError
from quantrt.model.model import Fingerprint
from quantrt.report.ranges.chart import draw_ranges, ranges_page
from quantrt.report.ranges.diff import describe_diff, show_diff

PATHS = (Path("old.ranges"), Path("new.ranges"))
MINMAX = CalibrationConfig(method="minmax")
SVG = "{http://www.w3.org/2000/svg}"


def stats(
    rng, spread: float = 1.0, *, graph: str = "g", data: str = "d", extra: tuple[str, ...] = ()
) -> Stats:
    tensors = {
        "same": TensorStats.from_values(np.linspace(-1, 1, 500)),
        "a<b": TensorStats.from_values(np.linspace(-1, 3, 400) * spread),
        "zero": TensorStats.from_values(np.zeros(9)),
    }
    tensors |= {name: TensorStats.from_values(rng.standard_normal(50)) for name in extra}
    return Stats(tensors, 7, data, Fingerprint(graph, "w"))


def test_what_a_narrow_range_costs_on_wider_data(rng):
    data = describe_diff(stats(rng), stats(rng, 4.0, data="e"), PATHS, MINMAX)
    json.dumps(data)
    first, *others = data["tensors"]
    assert first["name"] == "a<b"
    assert first["first"] == {"lo": -1.0, "hi": 3.0, "method": "minmax"}
    assert first["second"]["hi"] == 12.0
    assert first["cost_db"] > 30  # three quarters of the values are clipped
    assert all(row["cost_db"] == 0.0 for row in others)


def test_the_other_way_round_only_codes_are_wasted(rng):
    """A range four times as wide: a step four times as large, 12 dB."""
    data = describe_diff(stats(rng, 4.0), stats(rng), PATHS, MINMAX)
    assert data["tensors"][0]["cost_db"] == pytest.approx(12.04, abs=0.3)


def test_it_is_shown_with_what_is_on_one_side_alone(rng, capsys):
    second = replace(stats(rng, 4.0, extra=("more",)), fingerprint=Fingerprint("g", "other"))
    show_diff(describe_diff(stats(rng), second, PATHS, MINMAX), layers=False)
    text = capsys.readouterr().out
    assert "1 of 3 have other ranges" in text
    assert "both are of the same samples" in text
    assert "the weights of the two models differ" in text
    assert "1 tensors are in the second file alone" in text
    assert "-1 .. 3" in text and "-4 .. 12" in text


def test_two_models_are_an_error_that_names_the_files(rng):
    with pytest.raises(DataError, match=r"'old\.ranges' and 'new\.ranges'.*two models") as caught:
        describe_diff(stats(rng), stats(rng, graph="h"), PATHS, MINMAX)
    assert caught.value.got == "graph h"


def test_nothing_in_common_is_an_error(rng):
    other = replace(stats(rng), tensors={"x": TensorStats.from_values([1.0])})
    with pytest.raises(DataError, match="no tensor in common"):
        describe_diff(stats(rng), other, PATHS, MINMAX)


def test_a_picture_has_a_panel_for_every_tensor(rng):
    root = ElementTree.fromstring(draw_ranges(stats(rng), MINMAX))
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles == ["same", "a<b", "zero"]
    shapes = list(root.iter(f"{SVG}polygon"))
    assert len(shapes) == 3
    tops = [float(point.split(",")[1]) for point in shapes[0].get("points").split()][1:-1]
    base = float(shapes[0].get("points").split()[0].split(",")[1])
    assert base - min(tops) > 40
    assert max(tops) - min(tops) < 4  # even values: bins are of one height, but for what edges cut


def test_a_second_calibration_is_drawn_over_the_first(rng):
    picture = draw_ranges(stats(rng), MINMAX, other=stats(rng, 4.0))
    root = ElementTree.fromstring(picture)
    assert len(list(root.iter(f"{SVG}polygon"))) == 6
    page = ranges_page(picture, "old & new")
    assert page.startswith("<!doctype html>") and "old &amp; new" in page and "http-equiv" not in page
