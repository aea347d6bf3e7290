# SPDX-License-Identifier: Apache-2.0
"""A small model with data, and a way to call the command line and read its JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from quantrt.cli.main import main

MODEL = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,3,16,16] image) => (float[n,10] logits)
{ h = Conv<pads = [1,1,1,1]>(image, w1, b1)
  r = Relu(h)
  p = GlobalAveragePool(r)
  f = Flatten(p)
  logits = Gemm<transB = 1>(f, w2, b2) }"""


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: model.onnx, calib.npz (20 samples), valid.npz (30, with labels)."""
    model = onnx.parser.parse_model(MODEL)
    weights = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (10, 8), "b2": (10,)}
    for name, shape in weights.items():
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "model.onnx")
    images = rng.normal(size=(50, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", image=images[:20])
    np.savez(tmp_path / "valid.npz", image=images[20:], labels=rng.integers(0, 10, 30))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quantrt_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json and return its document; the command must give the exit code `code`."""

    def call(*words: str, code: int = 0) -> Any:
        got = main([*words, "--json", "-q"])
        out, err = capsys.readouterr()
        assert got == code, err
        document = json.loads(out)
        if isinstance(document, dict) and "error" in document:
            assert document["error"]["hint"], "a failure ends in what to try"
        return document

    return call


@pytest.fixture
def quantrt_text(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command and return what it prints; the command must give the exit code `code`."""

    def call(*words: str, code: int = 0) -> str:
        got = main([*words, "-q"])
        out, err = capsys.readouterr()
        assert got == code, err
        assert max((len(line) for line in out.splitlines()), default=0) <= 110
        return out

    return call
