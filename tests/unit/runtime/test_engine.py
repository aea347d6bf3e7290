# SPDX-License-Identifier: Apache-2.0
"""The engine: run, contexts, save and load, and what it says of itself."""

import copy
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import quantrt.runtime.engine as engine_module
from quantrt.device import describe_device
from quantrt.errors import DataError, DeviceError, InternalError, ModelError, UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.plan import ExecOptions, Layer
from quantrt.runtime.engine import Engine, load
from quantrt.runtime.notes import engine_notes
from quantrt.runtime.show import engine_html
from tests.plans import LIBRARIES, linear_weight, make_plan
from tests.programs import cuda_plan

libraries = pytest.mark.parametrize("library", LIBRARIES)

THREADS, RUNS = 8, 50


def inputs(batch: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, 32)).astype(np.float32)}


@libraries
def test_a_saved_and_loaded_engine_gives_the_same_bits(library: str, tmp_path: Path):
    path = tmp_path / "model.qrt"
    with Engine(make_plan(library)) as engine:
        want = engine.run(inputs())["y"]
        engine.save(path)
    with load(path) as loaded:
        np.testing.assert_array_equal(loaded.run(inputs())["y"], want)
        np.testing.assert_allclose(want, np.maximum(inputs()["x"] @ linear_weight(), 0), rtol=0, atol=1e-4)
        assert loaded.report == {"metric": "sqnr", "values": [1.5, None, True]}
        assert loaded.precision == "fp32"
        assert [str(spec) for spec in (*loaded.inputs, *loaded.outputs)] == [
            "x float32 [N,32]",
            "y float32 [N,32]",
        ]
        loaded.save(path)
    with load(str(path)) as again:
        np.testing.assert_array_equal(again.run(inputs())["y"], want)


@libraries
def test_threads_and_contexts_get_exactly_what_one_thread_gets(library: str):
    with Engine(make_plan(library)) as engine:
        feeds = [inputs(1 + index % 3, seed=index) for index in range(THREADS)]
        want = [engine.run(feed)["y"] for feed in feeds]

        def run_many(index: int) -> bool:
            with engine.create_context() as context:
                lane = context if index % 2 else engine
                return all(np.array_equal(lane.run(feeds[index])["y"], want[index]) for _ in range(RUNS))

        with ThreadPoolExecutor(THREADS) as pool:
            assert all(pool.map(run_many, range(THREADS)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_an_engine_that_is_copied_says_how_another_process_gets_it(copied: Callable):
    with Engine(make_plan("onnxruntime"), name="model.qrt") as engine:
        with pytest.raises(UsageError, match=r"cannot copy model\.qrt, or send it") as caught:
            copied(engine)
    assert caught.value.hint == "`engine.save(path)`, and `quantrt.load(path)` in that process"


@libraries
def test_after_a_warm_up_no_run_compiles(library: str):
    with Engine(make_plan(library)) as engine, Engine(make_plan(library)) as cold:
        engine.warm_up(inputs(1), inputs(4, seed=7))
        compiled = engine.executor.compiled_shapes
        assert compiled == ((((1, 32),), ((4, 32),)) if library == "openvino" else ())
        for batch in range(1, 7):
            with engine.create_context() as context:
                for lane in (engine, context):
                    got, want = (one.run(inputs(batch))["y"] for one in (lane, cold))
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
        assert engine.executor.compiled_shapes == compiled
        with pytest.raises(DataError, match="31 instead of 32"):
            engine.warm_up({"x": np.zeros((1, 31), np.float32)})


def test_a_warm_up_compiles_what_further_shapes_share(monkeypatch: pytest.MonkeyPatch):
    with Engine(make_plan("openvino")) as engine:
        engine.warm_up(inputs(1))

        def no_compiling(*args: object) -> None:
            raise AssertionError("compiled after the warm-up")

        monkeypatch.setattr(type(engine.executor), "_compile", no_compiling)
        assert engine.run(inputs(5))["y"].shape == (5, 32)


@libraries
def test_wrong_inputs_are_named_before_the_library_sees_them(library: str):
    with Engine(make_plan(library)) as engine, engine.create_context() as context:
        for lane in (engine, context):
            with pytest.raises(DataError, match="wrong element type") as caught:
                lane.run({"x": np.zeros((1, 32))})
            assert caught.value.hint == "`.astype(np.float32)`"
            with pytest.raises(DataError, match="31 instead of 32"):
                lane.run({"x": np.zeros((1, 31), np.float32)})


@libraries
def test_closed_is_closed(library: str):
    engine = Engine(make_plan(library), name="digits.qrt")
    context, other = engine.create_context(), engine.create_context()
    other.run(inputs())
    other.close()
    with pytest.raises(UsageError, match="context of digits.qrt: it is closed"):
        other.run(inputs())
    engine.close()
    engine.close()
    for use in (lambda: engine.run(inputs()), lambda: context.run(inputs()), engine.create_context):
        with pytest.raises(UsageError, match="digits.qrt: it is closed"):
            use()
    assert "[closed]" in repr(engine)


@libraries
def test_a_closed_engine_can_still_be_saved(library: str, tmp_path: Path):
    engine = Engine(make_plan(library))
    engine.close()
    engine.save(tmp_path / "model.qrt")
    with load(tmp_path / "model.qrt") as loaded:
        assert loaded.run(inputs())["y"].shape == (3, 32)


@libraries
def test_only_the_plans_outputs_are_returned(library: str):
    text = "g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Abs(x) }"
    plan = make_plan(library, text, outputs=(TensorSpec("b", "float32", ("N",)),))
    with Engine(plan) as engine:
        assert list(engine.run({"x": np.ones(2, np.float32)})) == ["b"]


@libraries
def test_a_plan_that_names_another_output_is_our_fault(library: str):
    with pytest.raises(InternalError, match="'z'"):
        Engine(make_plan(library, outputs=(TensorSpec("z", "float32", ("N", 32)),)))


def test_a_missing_library_names_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Engine(make_plan("onnxruntime")).save(tmp_path / "digits.qrt")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(DeviceError, match=r"cannot open digits\.qrt.*'onnxruntime'.*not installed") as caught:
        load(tmp_path / "digits.qrt")
    assert caught.value.hint == "`pip install onnxruntime`"


def test_a_damaged_model_inside_a_sound_file_is_a_model_error(tmp_path: Path):
    plan = make_plan("onnxruntime")
    broken = type(plan.model)("onnxruntime", b"rubbish", {})
    with pytest.raises(ModelError, match="cannot load"):
        Engine(make_plan("onnxruntime", model=broken))


@libraries
def test_parallel_runs_are_the_librarys(library: str):
    with Engine(make_plan(library, options=ExecOptions(hint="throughput", threads=2))) as engine:
        assert engine.parallel_runs == 2


# ---- what it says of itself


def test_repr_is_one_line():
    engine = Engine(make_plan("onnxruntime"), name="digits.qrt")
    want = "<Engine digits.qrt fp32 on onnxruntime: x float32 [N,32] -> y float32 [N,32]>"
    assert repr(engine) == want


def test_an_uncalibrated_engine_says_so_everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    engine = Engine(make_plan("onnxruntime", is_calibrated=False))
    engine.save(tmp_path / "m.qrt")
    with caplog.at_level(logging.WARNING, "quantrt"):
        loaded = load(tmp_path / "m.qrt")
    shown = [
        repr(loaded),
        loaded._repr_html_(),
        " ".join(loaded.notes),
        caplog.text,
        repr(engine),
        *engine.notes,
    ]
    assert all("uncalibrated (random data)" in text for text in shown)


def test_a_calibrated_engine_does_not():
    engine = Engine(make_plan("onnxruntime"))
    assert "uncalibrated" not in repr(engine) + engine._repr_html_() + "".join(engine.notes)


def test_a_terminal_gets_the_facts_of_the_notebook():
    engine = Engine(make_plan("onnxruntime"), name="m.qrt")
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(engine)
    text = capture.get()
    assert "m.qrt" in text and "x float32 [N,32]" in text and "onnxruntime, latency" in text


def test_html_escapes_the_models_names():
    layers = (Layer(name="<b>", op_type="MatMul", precision="int8<script>", reason="r"),)
    engine = Engine(make_plan("onnxruntime", layers=layers), name="<script>alert(1)</script>")
    html = engine._repr_html_()
    assert "<script>" not in html
    assert "int8&lt;script&gt;" in html
    assert re.fullmatch(r"<table>.*</table>", html)


def test_loading_on_the_machine_of_the_build_notes_nothing(tmp_path: Path):
    Engine(make_plan("onnxruntime", device=describe_device(with_gpu=False))).save(tmp_path / "m.qrt")
    assert load(tmp_path / "m.qrt").notes == ()


def test_loading_elsewhere_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    Engine(make_plan("onnxruntime")).save(tmp_path / "m.qrt")
    monkeypatch.setattr(engine_module, "describe_machine", lambda library: {"cpu": "B", "isa": ["avx2"]})
    with caplog.at_level(logging.WARNING, "quantrt"):
        engine = load(tmp_path / "m.qrt")
    assert engine.notes == ("timed on A; this is B: choices made there were not timed again",)
    assert engine.notes[0] in caplog.text


HERE = {
    "cpu": "A",
    "physical_cores": 2,
    "isa": ["avx2"],
    "libraries": {"onnxruntime": "1.0", "openvino": "9"},
}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"memory_bytes": 5, "os": "Other"}, []),
        ({"libraries": {"onnxruntime": "1.0", "openvino": "10"}}, []),
        ({"cpu": "B"}, ["timed on A; this is B:"]),
        ({"physical_cores": 8}, ["timed on A, 2 cores; this is A, 8 cores:"]),
        ({"isa": ["avx2", "amx_int8"]}, ["timed on A, without amx_int8; this is A, with amx_int8:"]),
        ({"isa": []}, ["timed on A, with avx2; this is A, without avx2:"]),
        ({"cpu": "B", "physical_cores": 8}, ["timed on A, 2 cores; this is B, 8 cores:"]),
        ({"libraries": {"onnxruntime": "2.0"}}, ["onnxruntime 1.0; this is onnxruntime 2.0"]),
        ({"cpu": "B", "libraries": {"onnxruntime": "2.0"}}, ["this is B", "onnxruntime 2.0"]),
        ({"cpu": None, "isa": None, "libraries": None}, []),
    ],
)
def test_notes_compare_what_both_sides_know(changes: dict[str, object], parts: list[str]):
    notes = engine_notes(make_plan("onnxruntime"), {**HERE, **changes})
    assert len(notes) == len(parts)
    for note, part in zip(notes, parts, strict=True):
        assert part in note


@pytest.mark.parametrize(
    ("floats", "isa", "is_told"),
    [
        ("bf16", ["avx2"], True),
        ("fp32", ["avx2"], False),
        ("bf16", ["avx512_bf16"], False),
        ("bf16", None, False),
    ],
)
def test_a_cpu_without_the_instructions_of_an_engines_floats_is_told(floats, isa, is_told: bool):
    plan = make_plan("openvino")
    plan = replace(plan, options=replace(plan.options, float_precision=floats))
    notes = engine_notes(plan, {**HERE, "isa": isa})
    told = [
        note
        for note in notes
        if "float layers compute in bf16, which this CPU has no instructions for" in note
    ]
    assert len(told) == is_told


GPU_A, GPU_B = ({"name": name, "driver": "570", "compute_capability": "9.0"} for name in "AB")
ON_A = {"cpu": "X", "isa": ["avx2"], "gpu": [GPU_A], "libraries": {"torch": "2.1", "openvino": "9"}}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, []),
        ({"cpu": "Y", "isa": []}, []),
        ({"gpu": [GPU_B]}, ["timed on A; this is B: choices made there were not timed again"]),
        ({"gpu": [GPU_B, GPU_B]}, ["timed on A; this is B:"]),
        ({"gpu": [GPU_B, GPU_A]}, []),
        ({"gpu": [{**GPU_A, "driver": "580"}]}, ["timed with driver 570; this is driver 580:"]),
        ({"gpu": [{**GPU_A, "driver": None}]}, []),
        ({"gpu": None}, []),
        ({"libraries": {"torch": "2.2", "openvino": "10"}}, ["torch 2.1; this is torch 2.2"]),
    ],
)
def test_notes_of_an_engine_for_a_gpu_compare_the_gpu(changes: dict[str, object], parts: list[str]):
    notes = engine_notes(cuda_plan(device=ON_A), {**ON_A, **changes})
    assert len(notes) == len(parts)
    for note, part in zip(notes, parts, strict=True):
        assert part in note


def test_an_engine_that_was_built_without_its_gpu_says_so():
    planned = {**ON_A, "gpu": None, "planned_for": GPU_B}
    (note,) = engine_notes(cuda_plan(device=planned), ON_A)
    assert note == "never timed: its kernels were chosen for B by estimates or a timing cache"


def test_html_of_an_engine_for_a_gpu_names_the_gpu():
    assert "cuda, timed on NVIDIA Test 9" in engine_html(cuda_plan(), "m.qrt", ())
    assert "cuda, not timed on its GPU" in engine_html(cuda_plan(device={"gpu": None}), "m.qrt", ())
