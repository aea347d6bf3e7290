# SPDX-License-Identifier: Apache-2.0
"""docs/serve.md: the service for FastAPI, behind a real server, where FastAPI and uvicorn are installed."""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quantrt

ROOT = Path(__file__).resolve().parents[2]
SERVICE = re.compile(r"^```python fastapi\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def service() -> str:
    (found,) = SERVICE.findall((ROOT / "docs" / "serve.md").read_text(encoding="utf-8"))
    return found


def test_the_service_is_python():
    compile(service(), "service.py", "exec")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the service answers."""
    pytest.importorskip("fastapi", reason="the page's service is for it")
    uvicorn = pytest.importorskip("uvicorn", reason="it serves FastAPI")
    monkeypatch.chdir(tmp_path)
    with quantrt.build(ROOT / "demo" / "digits_resnet.onnx") as engine:
        engine.save("digits.qrt")
    names: dict[str, Any] = {}
    exec(compile(service(), "service.py", "exec"), names)  # noqa: S102  our own page
    server = uvicorn.Server(uvicorn.Config(names["app"], port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.05)
    assert server.started
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/predict"
    finally:
        server.should_exit = True
        thread.join()


def ask(url: str, content: object) -> Any:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_the_service_answers(url: str):
    with np.load(ROOT / "demo" / "validation.npz") as arrays:
        images, labels = arrays["image"][:16], arrays["labels"][:16]
    digits = [ask(url, {"image": image.tolist()})["digit"] for image in images]
    assert np.mean(digits == labels) >= 0.9, "the demo's model is right for 0.99 of its pictures"
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(url, {"image": images[0][:, :8].tolist()})
    assert caught.value.code == 400 and "image" in caught.value.read().decode()
