# SPDX-License-Identifier: Apache-2.0
"""Plans made by other processes, with a stand-in for cuDNN's package."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from quantrt.errors import DeviceError
from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan, graph_key
from quantrt.runtime.cuda.device import cudnn_library
from quantrt.runtime.cuda.device.cudnn_library import make_plan, open_plans
from quantrt.tactics.cuda.convolutions.cudnn_plans import (
    OUT_OF_TIME,
    PlanMaker,
    plan_maker,
    why_no_plans,
    why_not_at,
)

FAKE = Path(__file__).parents[4] / "fake_cudnn.py"
GPU = "NVIDIA Test 9"
PROPERTIES = "of a GPU that is not here"
CPU, CUDA = torch.device("cpu"), torch.device("cuda")

GRAPH = CudnnGraph(
    x=(2, 16, 9, 7),
    weight=(24, 16, 3, 3),
    dtype="int8",
    strides=(1, 1),
    dilations=(1, 1),
    pads=(1, 0, 1, 2),
    operands=("channel", "scalar", "int8"),
    ops=(("mul", (0, 1)), ("add", (4, 3)), ("relu", (5,)), ("div", (6, 2))),
    outputs=((7, "int8"),),
)
TOO_LONG = replace(GRAPH, ops=(*GRAPH.ops, *(("neg", (7 + n,)) for n in range(9))))
DEADLY = replace(GRAPH, ops=(("sin", (0,)), *GRAPH.ops[1:]))


@pytest.fixture
def cudnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is what "cudnn" is, here and in processes started from here."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(FAKE, folder / "cudnn.py")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "cudnn", raising=False)


def test_cudnn_is_told_types_layouts_and_operations(cudnn: None):
    plan = make_plan(replace(GRAPH, rank=1), PROPERTIES, GPU, workspace_limit_bytes=100)
    assert (plan.cudnn, plan.gpu, plan.workspace_bytes) == (91900, GPU, 64)
    said = json.loads(plan.data)
    by_uid = {row["uid"]: row for row in said["tensors"] if "uid" in row}
    assert said["built"] == 2, "the second of cuDNN's own proposals"
    assert [op for op, _, _ in said["nodes"]] == ["conv_fprop", "mul", "add", "relu", "div"]
    assert (by_uid[1]["dim"], by_uid[1]["stride"]) == ([2, 16, 9, 7], [9 * 7 * 16, 1, 7 * 16, 16])
    assert by_uid[2]["dim"] == [24, 16, 3, 3]
    assert [by_uid[n]["dim"] for n in (100, 101, 102)] == [[1, 24, 1, 1], [1, 1, 1, 1], [2, 24, 9, 7]]
    assert [by_uid[n]["data_type"] for n in (1, 2, 100, 101, 102, 1000)] == [
        "i8",
        "i8",
        "f32",
        "f32",
        "i8",
        "i8",
    ]
    assert by_uid[1000]["is_output"]


def test_plans_are_made_once_and_failures_are_told(cudnn: None):
    maker, seen = PlanMaker(GPU, PROPERTIES), []
    graphs = [GRAPH, TOO_LONG, DEADLY, replace(GRAPH, rank=1), replace(GRAPH, rank=2), GRAPH]
    maker.make(graphs, workers=2, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 5) for n in range(1, 6)]
    assert set(maker.plans) == {graph_key(GRAPH), graph_key(replace(GRAPH, rank=1))}
    assert maker.reason([GRAPH]) == ""
    assert maker.reason([GRAPH, TOO_LONG]) == "cuDNN has no plan for the convolution: no engine"
    assert "killed by SIGABRT" in maker.reason([DEADLY])
    assert "proposes 2 engines, not 3" in maker.reason([replace(GRAPH, rank=2)])
    assert maker.is_lasting(maker.reason([TOO_LONG]))
    maker.make(graphs, on_progress=lambda done, total: pytest.fail("nothing is made twice"))


def test_what_time_did_not_allow_is_made_when_there_is_time(cudnn: None):
    maker = PlanMaker(GPU, PROPERTIES)
    maker.make([GRAPH], deadline_s=0.0)
    assert maker.reason([GRAPH]) == OUT_OF_TIME
    assert not maker.is_lasting(OUT_OF_TIME)
    maker.make([GRAPH], workers=1)
    assert maker.reason([GRAPH]) == ""
    assert list(maker.plans) == [graph_key(GRAPH)]


def test_a_known_plan_needs_no_process():
    plan = CudnnPlan(b"known", 0, 91900, GPU)
    maker = PlanMaker(GPU, PROPERTIES, known={graph_key(GRAPH): plan})
    maker.make([GRAPH], on_progress=lambda done, total: pytest.fail("it is known"))
    assert maker.plans == {graph_key(GRAPH): plan}


def test_known_plans_of_another_gpu_or_cudnn_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "empty", lambda *shape, device: torch.zeros(0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: GPU)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    plans = {
        "here": CudnnPlan(b"", 10, 91900, GPU),
        "large": CudnnPlan(b"", 1000, 91900, GPU),
        "gpu": CudnnPlan(b"", 0, 91900, "NVIDIA Test 8"),
        "cudnn": CudnnPlan(b"", 0, 92000, GPU),
    }
    found = plan_maker(CUDA, known=plans, workspace_limit_bytes=100)
    assert found is not None
    assert list(found.plans) == ["here"]


def test_where_no_plans_are_made(monkeypatch: pytest.MonkeyPatch):
    assert "not here" in why_no_plans(None)
    assert why_no_plans(CPU) == ""
    assert plan_maker(CPU) is None
    assert "sm_80, sm_89 too" in why_no_plans(CPU, [80, 89])
    monkeypatch.setattr(cudnn_library.importlib.util, "find_spec", lambda name: None)
    assert why_no_plans(CUDA) == "nvidia-cudnn-frontend is not installed: `pip install 'quantrt[cuda]'`"


@pytest.mark.parametrize(
    ("level", "excluded", "products", "is_made"),
    [
        (3, (), 10**9, False),
        (3, ("torch",), 10**9, False),
        (3, (), 10**10, True),
        (2, (), 10**10, False),
        (4, (), 1, True),
        (5, (), 1, True),
        (2, ("triton",), 1, False),
        (3, ("triton",), 1, True),
    ],
)
def test_the_levels_at_which_plans_are_made(
    level: int, excluded: tuple[str, ...], products: int, is_made: bool
):
    assert (why_not_at(level, excluded, products) == "") is is_made


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(DeviceError, match="nvidia-cudnn-frontend is not installed") as failure:
        open_plans({"k": CudnnPlan(b"", 0, 91900, GPU)}, CUDA)
    assert failure.value.hint == "`pip install 'quantrt[cuda]'`"


@pytest.mark.parametrize(
    ("plan", "got", "expected"),
    [
        (CudnnPlan(b"{}", 0, 92001, GPU), "cuDNN 9.19.0", "cuDNN 9.20.1"),
        (CudnnPlan(b"{}", 0, 91900, "NVIDIA Test 8"), f"GPU {GPU}", "GPU NVIDIA Test 8"),
    ],
)
def test_a_plan_of_another_cudnn_or_gpu_is_refused(
    cudnn: None, monkeypatch: pytest.MonkeyPatch, plan: CudnnPlan, got: str, expected: str
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: GPU)
    with pytest.raises(DeviceError, match="compiled by or for another") as failure:
        open_plans({"k": plan}, CUDA)
    assert (failure.value.got, failure.value.expected) == (got, expected)
    assert "--exclude-tactic-source cudnn" in str(failure.value.hint)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch tells of a GPU, as far as plans ask."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: GPU)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77))


def test_a_plan_runs_on_the_current_stream_with_each_thread_s_own_handle(cudnn: None, gpu: None):
    plan = make_plan(GRAPH, PROPERTIES, GPU)
    opened = open_plans({"a": plan, "b": plan}, CUDA)
    tensors = {1: torch.zeros(4), 2: torch.zeros(4)}
    workspace = torch.zeros(opened["a"].workspace_bytes, dtype=torch.uint8)
    opened["a"].run(tensors, workspace, "r")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(opened["a"].run, tensors, workspace, "r").result()
    opened["b"].run(tensors, workspace, "r")
    addresses = {uid: tensor.data_ptr() for uid, tensor in tensors.items()}
    first, second = opened["a"]._graph.runs
    assert (first[:2], second[:2]) == ((addresses, workspace.data_ptr()),) * 2
    handles = [first[2], second[2], opened["b"]._graph.runs[0][2]]
    assert [handle.stream for handle in handles] == [77, 77, 77]
    assert handles[0] is handles[2]
    assert handles[0] is not handles[1]
    for one in opened.values():
        one.close()
    assert [handle.stream for handle in handles] == ["destroyed"] * 3


def test_a_plan_that_cudnn_cannot_read_or_run_is_an_error(
    cudnn: None, gpu: None, monkeypatch: pytest.MonkeyPatch
):
    plan = make_plan(GRAPH, PROPERTIES, GPU)
    with pytest.raises(DeviceError, match="cannot read a plan") as failure:
        open_plans({"a": replace(plan, data=plan.data[:40])}, CUDA)
    assert "building the engine again" in str(failure.value.hint)
    (opened,) = open_plans({"a": plan}, CUDA).values()
    monkeypatch.setattr(opened._graph, "execute", lambda *_, **__: int("no kernel\nimage"), raising=False)
    with pytest.raises(DeviceError, match="the convolution of region 'layer1/conv'"):
        opened.run({}, torch.zeros(64, dtype=torch.uint8), "layer1/conv")
