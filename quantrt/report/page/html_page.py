# SPDX-License-Identifier: Apache-2.0
"""Report data -> one HTML file with its style, script and data inside; it loads nothing from anywhere.

The data are one JSON block in which "<", ">" and "&" are escaped, so that no name in a model can end it; the
script writes texts as text nodes alone. A content security policy lets the browser run this script and use
this style, by their hashes, and fetch nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

__all__ = ["html_page"]

STYLES = ("page.css", "parts.css")
SCRIPTS = (
    "elements.js", "numbers.js", "table.js", "summary.js", "latency.js", "shares.js", "layers.js",
    "ranges.js", "roofline.js", "graph.js", "side_by_side.js", "page.js",
)  # fmt: skip
"""In the order in which they use each other; all run in one function's scope."""

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def html_page(data: Mapping[str, Any]) -> str:
    """The page of a report's data."""
    style = "\n".join(_part(name) for name in STYLES)
    script = '(() => {\n"use strict";\n' + "\n".join(_part(name) for name in SCRIPTS) + "\n})();\n"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = " and ".join(str(view["name"]) for view in data["engines"])
    parts = {
        "policy": html.escape(policy),
        "title": html.escape(title),
        "verdict": html.escape(_verdict(data)),
        "style": style,
        "data": _json_block(data),
        "script": script,
    }
    pieces = _part("page.html").split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def _part(name: str) -> str:
    return (files("quantrt.report.page") / "html" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json_block(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign, escaped in ESCAPES.items():
        text = text.replace(sign, escaped)
    return text


def _verdict(data: Mapping[str, Any]) -> str:
    """For a browser without scripts."""
    reasons = (view["build"].get("verdict", {}).get("reason") for view in data["engines"])
    return ". ".join(str(reason) for reason in reasons if reason)
