# SPDX-License-Identifier: Apache-2.0
"""What halves are too narrow for is seen once, and known again for the same model and inputs alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig  # noqa: E402
from quantrt.gpu import gpu_named  # noqa: E402
from quantrt.tactics.cuda.lower import CudaLowering  # noqa: E402
from quantrt.tactics.cuda.program import wide_values as module  # noqa: E402
from quantrt.tactics.cuda.program.wide import Wide  # noqa: E402
from quantrt.tactics.cuda.program.wide_values import KeptWide, WideValues  # noqa: E402
from tests.nets import net, samples  # noqa: E402

CPU = torch.device("cpu")
ENVIRONMENT = {"gpu": "NVIDIA H200"}
X = {"x": samples(4, 8)}


def _model(factor: float):
    """A product of numbers around `factor`, through a Relu."""
    text = "net (float[N,8] x) => (float[N,8] y) { m = MatMul(x, w) \n r = Relu(m) \n y = MatMul(r, v) }"
    return net(
        text, {"w": np.float32(factor) * np.eye(8, dtype=np.float32), "v": np.eye(8, dtype=np.float32)}
    )


def _seen(model, inputs, kept):
    """What is known of a model, and how often its references were computed for that."""
    lowering = CudaLowering(model, CudaConfig(), inputs, gpu=gpu_named("H200"), device="cpu")
    counted = []

    def reference():
        counted.append(1)
        return lowering.reference(None, "fp32")

    found = WideValues(reference, inputs, CPU, kept).known()
    lowering.close()
    return found, len(counted)


def test_it_is_seen_once_for_equal_models_and_inputs(tmp_path: Path):
    path = tmp_path / "timings.json"
    wide, count = _seen(_model(1e4), X, KeptWide(path, _model(1e4), X, ENVIRONMENT))
    assert wide.sums and "r" in wide.values and count == 1
    again, count = _seen(_model(1e4), X, KeptWide(path, _model(1e4), X, ENVIRONMENT))
    assert again == wide and count == 0
    narrow, count = _seen(_model(1.0), X, KeptWide(path, _model(1.0), X, ENVIRONMENT))
    assert narrow == Wide() and count == 1
    assert KeptWide(path, _model(1.0), X, ENVIRONMENT).load() == Wide()
    assert KeptWide(path, _model(1e4), X, ENVIRONMENT).load() == wide


@pytest.mark.parametrize("differs", ["inputs", "environment", "options", "stored", "sources"])
def test_what_it_follows_from_tells_it_apart(differs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, model = tmp_path / "timings.json", _model(1e4)
    KeptWide(path, model, X, ENVIRONMENT).save(Wide(frozenset("r")))
    inputs = {"x": 2 * X["x"]} if differs == "inputs" else X
    environment = {"gpu": "another"} if differs == "environment" else ENVIRONMENT
    options = ["mask"] if differs == "options" else []
    model = replace(model, stored={"m": "float32"}) if differs == "stored" else model
    if differs == "sources":
        monkeypatch.setattr(module, "source_digest", lambda folders: "0")
    assert KeptWide(path, model, inputs, environment, options).load() is None


def test_more_samples_are_minded_but_not_kept(tmp_path: Path):
    path, model = tmp_path / "timings.json", _model(1.0)
    lowering = CudaLowering(model, CudaConfig(), X, gpu=gpu_named("H200"), device="cpu")
    known = WideValues(
        lambda: lowering.reference(None, "fp32"), X, CPU, KeptWide(path, model, X, ENVIRONMENT)
    )
    assert not known.widen([X])
    assert known.widen([{"x": 1e5 * np.ones((4, 8), np.float32)}])
    assert "r" in known.known().values
    assert KeptWide(path, model, X, ENVIRONMENT).load() == Wide()
    lowering.close()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": "quantrt kept wide values", "found": {"a": {"sums": 1}}}']
)
def test_a_damaged_file_is_named_and_made_anew(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    kept = KeptWide(tmp_path / "timings.json", _model(1.0), X, ENVIRONMENT)
    kept.path.write_text(text)
    assert kept.load() is None
    assert f"'{kept.path}' is damaged, not used, and made anew" in caplog.text
    kept.save(Wide(frozenset({"h"})))
    assert kept.load() == Wide(frozenset({"h"}))


def test_a_second_build_computes_no_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = CudaConfig(
        timing_cache=str(tmp_path / "timings.json"),
        builder_optimization_level=0,
        exclude_tactic_sources=("triton", "cublaslt", "cudnn", "torch"),
    )

    def build():
        lowering = CudaLowering(_model(1e4), config, X, gpu=gpu_named("H200"), device="cpu")
        made = [lowering.lower(None, precision)[0] for precision in ("fp32", "fp16")]
        lowering.close()
        return made

    first = build()
    monkeypatch.setattr(module, "trace", None)
    again = build()
    assert [model.graph for model in again] == [model.graph for model in first]
    assert b"stored in FP32" in first[1].graph
