# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: it loads without a complaint or a request, sorts, filters, draws and compares."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Page, browser_page, find_chromium
from tests.engine_views import EVIL, made_up_report

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

MANY = 2000
SHOWN = 50
"""Rows of a table before all are asked for."""

CHECK_HEADER = (
    "[...document.querySelectorAll('#layers th')].find((th) => th.textContent.startsWith({name!r}))"
)
FIRST_COLUMN = (
    "[...document.querySelectorAll('#layers tbody tr')].map((tr) => Number(tr.cells[0].textContent))"
)


CLICK_BOX = """(() => {{
  const box = document.querySelector("#graph .box[data-place='{place}'] .body").getBoundingClientRect();
  const canvas = document.querySelector("#graph .canvas svg");
  const where = {{ clientX: box.x + 20, clientY: box.y + 10, pointerId: 1 }};
  for (const kind of ["pointerdown", "pointerup"]) canvas.dispatchEvent(new PointerEvent(kind, where));
}})()"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    assert CHROMIUM is not None
    with browser_page(CHROMIUM) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_to_complain(page: Page) -> Iterator[None]:
    del page.complaints[:], page.requests[:]
    yield
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "about:"))] == []
    assert page.js("document.querySelectorAll('img').length") == 0
    assert page.js("document.title") != "broken"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    made_up_report(40, tensors=30).save(made / "one.html")
    made_up_report(40, 30, tensors=2).save(made / "two.html")
    made_up_report(MANY, tensors=300).save(made / "many.html")
    return made


def sort_by(page: Page, name: str) -> list[int]:
    """Click a header; the places of the layers in the order of the rows."""
    page.js(CHECK_HEADER.format(name=name) + ".querySelector('button').click()")
    return list(page.js(FIRST_COLUMN))


def type_in(page: Page, what: str, text: str) -> None:
    field = json.dumps(f"input[aria-label='{what}']")
    page.js(
        f"""(() => {{
          const field = document.querySelector({field});
          field.value = {json.dumps(text)};
          field.dispatchEvent(new Event("input"));
          field.dispatchEvent(new Event("change"));
        }})()"""
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["one", "two"])
def test_it_loads_and_nothing_is_wider_than_the_window(
    page: Page, folder: Path, name: str, width: int, dark: bool
):
    page.open(folder / f"{name}.html", width=width, dark=dark)
    assert page.js("document.documentElement.scrollWidth") <= width
    titles = page.js("[...document.querySelectorAll('h2')].map((title) => title.textContent)")
    assert len(titles) == (7 if name == "one" else 8)
    back = page.js("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is not dark


def test_names_are_shown_as_they_are(page: Page, folder: Path):
    page.open(folder / "one.html")
    text = page.js("document.querySelector('main').textContent")
    assert EVIL in text
    assert page.js("document.querySelector('h1').textContent") == f"0 {EVIL}.qrt"


def test_the_summary_says_the_verdict_and_the_figures(page: Page, folder: Path):
    page.open(folder / "one.html")
    figures = page.js("[...document.querySelectorAll('.figure')].map((figure) => figure.innerText)")
    assert "1.00 ms" in figures[0] and "2.00× as fast as lib fp32" in figures[0]
    assert "0.9000" in figures[1] and "drop 0.0000 of 0.0100 allowed" in figures[1]
    assert "1.23 kB" in figures[2] and "0.25 of the ONNX file" in figures[2]
    assert page.js("document.querySelector('.mark').textContent") == "IN BUDGET"


def test_layers_are_sorted_by_their_headers(page: Page, folder: Path):
    page.open(folder / "one.html")
    assert sort_by(page, "time") == list(range(40, 0, -1))  # numbers: the largest first
    assert sort_by(page, "time") == list(range(1, 41))
    kinds = sort_by(page, "Kind")
    assert kinds[:10] == list(range(1, 41, 4))  # Conv, in order of the layers
    pressed = page.js(CHECK_HEADER.format(name="Kind") + ".getAttribute('aria-sort')")
    assert pressed == "ascending"


def test_layers_are_filtered_and_opened(page: Page, folder: Path):
    page.open(folder / "one.html")
    type_in(page, "Filter layers", "BLOCK.7/ gemm")
    assert page.js(FIRST_COLUMN) == [8]
    page.js("document.querySelector('#layers tbody tr').click()")
    detail = page.js("document.querySelector('#layers tr.detail').innerText")
    assert "cublaslt: 3, 9.00 µs: slower" in detail and "t6 float32[1,N,4] row major" in detail
    type_in(page, "Filter layers", "")
    page.js(
        "(() => { const pick = document.querySelector('#layers select'); pick.value = 'fp32';"
        " pick.dispatchEvent(new Event('change')); })()"
    )
    assert page.js(FIRST_COLUMN) == [1, 8, 15, 22, 29, 36]
    assert "6 of 40 layers, 111.0 µs" in page.js("document.querySelector('#layers .controls').innerText")


def test_ranges_are_sorted_filtered_and_drawn(page: Page, folder: Path):
    page.open(folder / "one.html")
    assert page.js("document.querySelectorAll('.range').length") == 24
    bars = "document.querySelectorAll('.range:first-child svg .{kind}').length"
    assert page.js(bars.format(kind="inside")) + page.js(bars.format(kind="out")) == 47  # one of 48 is empty
    assert page.js(bars.format(kind="out")) > 0
    type_in(page, "Filter tensors", " 17")
    assert page.js("document.querySelectorAll('.range').length") == 1


def test_ranges_that_were_given_were_not_observed(page: Page, tmp_path: Path):
    report = made_up_report(4, tensors=2)
    (view,) = report.data["engines"]
    view["build"]["calibration_cache"] = {"path": "a.cache", "used": [{}, {}]}
    for tensor in view["tensors"]:
        tensor.update(bins="", min=None, max=None, clipped_ratio=None, noise_ratio=None)
    report.save(tmp_path / "given.html")
    page.open(tmp_path / "given.html")
    assert "no values were observed" in page.js("document.querySelector('#ranges').innerText")
    assert "2 scales of the calibration cache a.cache" in page.js(
        "document.querySelector('#summary').innerText"
    )


def test_a_box_of_the_graph_tells_of_its_layer(page: Page, folder: Path):
    page.open(folder / "one.html")
    assert page.js("document.querySelectorAll('#graph .box').length") == 40
    type_in(page, "Find a layer in the graph", "block.12/")
    assert page.js("document.querySelector('#graph .panel h3').textContent") == "/block.12/op"
    assert page.js("document.querySelectorAll('#graph .halo').length") == 1
    page.js("Element.prototype.setPointerCapture = () => {}")  # made-up pointers cannot be captured
    page.js(CLICK_BOX.format(place=13))
    assert page.js("document.querySelector('#graph .panel h3').textContent") == "/block.13/op"


def test_the_graph_is_coloured_by_time(page: Page, folder: Path):
    page.open(folder / "one.html")
    page.js("[...document.querySelectorAll('#graph .controls button')].at(-1).click()")
    tones = page.js("[...document.querySelectorAll('#graph .box')].map((box) => box.getAttribute('class'))")
    assert tones[0] == "box heat1" and tones[39] == "box heat5"


def test_the_theme_button_turns_the_page_dark(page: Page, folder: Path):
    page.open(folder / "one.html")
    page.js("document.querySelector('header button').click()")
    assert page.js("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_two_engines_stand_side_by_side(page: Page, folder: Path):
    page.open(folder / "two.html")
    rows = page.js("[...document.querySelectorAll('#compare tbody tr')].map((row) => row.innerText)")
    assert len(rows) == 40  # 30 layers that both have, 10 of the longer engine alone
    assert sum("nothing" in row for row in rows) == 10
    gains = [float(row.split("\t")[5].replace("−", "-")) for row in rows if row.split("\t")[5] != "-"]
    assert [abs(gain) for gain in gains] == sorted(map(abs, gains), reverse=True), (
        "what differs most is ahead"
    )
    assert min(gains) < 0 < max(gains), "whichever engine it is that is faster there"
    assert page.js("document.querySelectorAll('#graph .canvas').length") == 2
    type_in(page, "Find a layer in the graph", "block.20/")
    assert page.js("document.querySelectorAll('#graph .halo').length") == 2
    type_in(page, "Filter aligned layers", "norm 39")
    assert page.js("document.querySelectorAll('#compare tbody tr').length") == 1
    page.js("[...document.querySelectorAll('#layers .together button')].at(-1).click()")
    assert len(page.js(FIRST_COLUMN)) == 30


def test_two_thousand_layers(page: Page, folder: Path):
    page.open(folder / "many.html")
    assert len(page.js(FIRST_COLUMN)) == SHOWN
    assert sort_by(page, "time") == list(range(MANY, MANY - SHOWN, -1))
    type_in(page, "Filter layers", "block.1999/")
    assert page.js(FIRST_COLUMN) == [2000]
    type_in(page, "Filter layers", "")
    page.js("document.querySelector('#layers .more button').click()")
    assert len(page.js(FIRST_COLUMN)) == MANY
    # From afar a few shapes stand for all boxes; from near only those in view are drawn.
    assert page.js("document.querySelectorAll('#graph .box').length") == 0
    assert page.js("document.querySelectorAll('#graph .far path').length") == 2
    type_in(page, "Find a layer in the graph", "block.1000/")
    boxes = page.js("document.querySelectorAll('#graph .box').length")
    assert 0 < boxes < 200
    spent_ms = page.js(
        """(() => {
          const start = performance.now();
          const canvas = document.querySelector("#graph .canvas svg");
          const down = () => new KeyboardEvent("keydown", { key: "ArrowDown" });
          for (let i = 0; i < 20; i += 1) canvas.dispatchEvent(down());
          return performance.now() - start;
        })()"""
    )
    assert spent_ms < 2000  # 20 steps of 60 pixels
