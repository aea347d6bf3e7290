# SPDX-License-Identifier: Apache-2.0
"""The page is one file, its data cannot leave their block, and its policy fits its script."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from quantrt.report.page.html_page import html_page
from tests.engine_views import EVIL, made_up_report


class Parts(HTMLParser):
    """Tags with their attributes, and the text of script and style elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.raw.append((self.tags[-1][0], data))
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return made_up_report(12, 9, tensors=3).html()


def test_names_cannot_end_the_data_block(page: str):
    parts = Parts(page)
    scripts = [text for tag, text in parts.raw if tag == "script"]
    assert len(scripts) == 2
    data = json.loads(scripts[0])
    assert data["engines"][0]["layers"][3]["name"] == f"/block.3/op {EVIL}"
    assert not any(tag == "img" for tag, _ in parts.tags)
    assert "<" not in scripts[0] and "&" not in scripts[0]


def test_the_data_are_those_of_the_report():
    report = made_up_report(5)
    scripts = [text for tag, text in Parts(report.html()).raw if tag == "script"]
    assert json.loads(scripts[0]) == json.loads(json.dumps(report.data))


def test_the_policy_allows_this_script_and_style_and_nothing_else(page: str):
    parts = Parts(page)
    metas = [attrs for tag, attrs in parts.tags if tag == "meta"]
    policy = next(attrs["content"] for attrs in metas if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none';")
    for kind, text in (parts.raw[0], parts.raw[-1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy and "http" not in policy


def test_nothing_is_loaded_from_elsewhere(page: str):
    parts = Parts(page)
    assert {tag for tag, _ in parts.tags} <= {
        "html", "head", "meta", "title", "style", "body", "main", "noscript", "p", "script"
    }  # fmt: skip
    assert not any({"src", "href", "style"} & attrs.keys() for _, attrs in parts.tags)
    script = parts.raw[-1][1]
    addresses = re.findall(r"https?://[^\"'\s]+", script)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # the name of SVG, which is not fetched
    for word in (
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "eval(",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
    ):
        assert word not in script


def test_without_scripts_the_page_tells_the_verdict(page: str):
    assert f"{EVIL}. {EVIL}" in Parts(page).text


def test_nan_is_not_written():
    report = made_up_report(3)
    data = {**report.data, "version": float("nan")}
    with pytest.raises(ValueError, match="JSON"):
        html_page(data)
