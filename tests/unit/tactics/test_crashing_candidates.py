# SPDX-License-Identifier: Apache-2.0
"""A library that crashes on a candidate costs the candidate alone."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import openvino
import pytest

from quantrt import worker_process
from quantrt.build import build
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.errors import ModelError
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.openvino import first_run
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from quantrt.runtime.openvino.first_run import answer, how_it_crashes
from quantrt.runtime.openvino.guarded import GuardedOpenVino, may_crash
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec
from tests.nets import net, quantized, resnet, samples, weights

SHORT = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
INT8 = Spec("openvino", "int8")
DIES = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 11)"

BLOCK = """
  n{i} = LayerNormalization<axis = -1>(x{i}, gamma, beta)
  q{i} = MatMul(n{i}, wq)
  k{i} = MatMul(n{i}, wk)
  v{i} = MatMul(n{i}, wv)
  t{i} = Transpose<perm = [0, 2, 1]>(k{i})
  s{i} = MatMul(q{i}, t{i})
  p{i} = Softmax<axis = -1>(s{i})
  m{i} = MatMul(p{i}, v{i})
  a{i} = Add(x{i}, m{i})
  f{i} = MatMul(a{i}, w1)
  r{i} = Relu(f{i})
  h{i} = MatMul(r{i}, w2)
  x{next} = Add(a{i}, h{i})"""

ATTENTION = (
    "net (float[N,6,16] x0) => (float[N,6,5] y) {"
    + "".join(BLOCK.format(i=i, next=i + 1) for i in range(2))
    + "  y = MatMul(x2, w) }"
)

SHAPES = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "w1": (16, 32), "w2": (32, 16), "w": (16, 5)}
X = {"x0": samples(12, 6, 16)}


def attention():
    ones = {"gamma": np.ones(16, np.float32), "beta": np.zeros(16, np.float32)}
    return net(ATTENTION, {**weights(SHAPES), **ones})


@pytest.fixture
def dying_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker dies of its first request."""

    def start(module: str, environment: object) -> "subprocess.Popen[bytes]":
        assert module == first_run.WORKER
        return subprocess.Popen([sys.executable, "-c", DIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(worker_process, "_start", start)


CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=SHORT,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(libraries=("openvino", "onnxruntime")),
)

CRASHED = "OpenVINO crashed while it compiled the model: killed by SIGSEGV"


def test_a_crash_rejects_the_candidate_and_the_build_goes_on(dying_worker: None):
    with build(attention(), config=CONFIG, calibration=X) as engine:
        rows = {row["name"]: row for row in engine.report["candidates"]}
    for name in ("openvino fp32", "openvino int8"):
        assert (rows[name]["status"], rows[name]["reason"]) == ("rejected", CRASHED)
    assert {row["status"] for name, row in rows.items() if "onnxruntime" in name} & {"shipped", "chosen"}


def test_models_without_attention_are_opened_at_once(dying_worker: None):
    model = resnet()
    fitted = Fitted(quantized(model, OPENVINO, {"x": samples(4, 3, 16, 16)}), "minmax", {})
    opener = Opener(model, CONFIG, {"x": samples(1, 3, 16, 16)})
    opened = opener.open(INT8, fitted)
    assert isinstance(opened, Candidate)
    opened.executor.close()


def test_an_engine_that_crashes_here_is_an_error_when_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dying_worker: None
):
    lowered = lower_to_openvino(attention().graph)
    with closing(GuardedOpenVino(lowered, ExecOptions(threads=1))) as executor:
        with pytest.raises(ModelError, match="killed by SIGSEGV") as caught:
            executor.run(X)
    assert caught.value.got == "input shapes 12x6x16"
    assert caught.value.hint == "`quantrt build MODEL.onnx --library onnxruntime`"


def test_a_worker_that_lives_is_no_crash():
    lowered = lower_to_openvino(resnet().graph)
    assert how_it_crashes(lowered, ExecOptions(threads=1), [(2, 3, 16, 16)], 1) is None
    assert how_it_crashes(lowered, ExecOptions(threads=1), [(2, 3, 16)], 1) is None, "a refusal is told later"


@pytest.mark.parametrize(("own_shapes", "compiled"), [(1, (((2, 3, 16, 16),),)), (0, ())])
def test_the_worker_opens_and_runs_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, own_shapes: int, compiled: tuple
):
    asked: list[dict] = []

    def ask(self: worker_process.WorkerProcess, request: dict) -> dict:
        asked.append(json.loads(json.dumps(request)))
        return answer(asked[0])

    ran: list[tuple] = []

    class Executor(OpenVinoExecutor):
        def run_zeros(self, shapes) -> None:
            super().run_zeros(shapes)
            ran.append((self._source_bytes(), shapes, self.compiled_shapes))

        def _source_bytes(self) -> bytes:
            return self._weights.tobytes()

    monkeypatch.setattr(worker_process.WorkerProcess, "ask", ask)
    monkeypatch.setattr(first_run, "OpenVinoExecutor", Executor)
    lowered = lower_to_openvino(resnet().graph)
    assert how_it_crashes(lowered, ExecOptions(threads=1), [(2, 3, 16, 16)], own_shapes) is None
    assert ran == [(lowered.weights["bin"].tobytes(), ((2, 3, 16, 16),), compiled)]
    assert not Path(asked[0]["folder"]).exists()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_graph_that_crashes_openvino_itself_is_rejected(precision: str):
    model = attention()
    fitted = Fitted(quantized(model, OPENVINO, X, method="minmax"), "minmax", {})
    opener = Opener(model, CONFIG, {"x0": X["x0"][:4]})
    found = opener.open(Spec("openvino", precision), fitted if precision == "int8" else None)
    if isinstance(found, Candidate):
        found.executor.close()
        pytest.skip("this OpenVINO compiles attention that is added to its residual")
    assert isinstance(found, Rejected)
    assert found.reason == CRASHED


def test_which_graphs_are_tried_first():
    ones = {"gamma": np.ones(16, np.float32), "beta": np.zeros(16, np.float32), "b": np.ones(16, np.float32)}
    arrays = {**weights(SHAPES), **ones}

    def suspects(text: str, *, is_int8: bool = False) -> bool:
        model = net(text, arrays)
        graph = write(quantized(model, OPENVINO, X, method="minmax")) if is_int8 else model.graph
        lowered = lower_to_openvino(graph)
        read = openvino.Core().read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
        return may_crash(read)

    assert suspects(ATTENTION)
    assert suspects(ATTENTION, is_int8=True)
    moved = ATTENTION.replace("m0 = MatMul(p0, v0)", "u0 = MatMul(p0, v0) m0 = Identity(u0)")
    assert suspects(moved)
    projected = ATTENTION
    for i in range(2):
        projected = projected.replace(
            f"m{i} = MatMul(p{i}, v{i})", f"u{i} = MatMul(p{i}, v{i}) m{i} = MatMul(u{i}, wq)"
        )
    assert not suspects(projected) and not suspects(projected, is_int8=True)
    biased = projected.replace("m0 = MatMul(u0, wq)", "z0 = Add(u0, b) m0 = MatMul(z0, wq)")
    assert not suspects(biased), "a constant is no residual"
