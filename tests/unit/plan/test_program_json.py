# SPDX-License-Identifier: Apache-2.0
"""Programs in engine files: what is written is what is read, and damage is found."""

import json
import math
from dataclasses import fields, replace

import ml_dtypes
import numpy as np
import pytest

from quantrt.errors import InternalError, ModelError
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan import program_json
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.plan.serialize import load_plan, save_plan
from tests.plans import make_plan

SPEC = KernelSpec(
    family="gemm",
    function="gemm_kernel",
    signature=(("x_ptr", "*fp16"), ("M", "i32"), ("scale", "fp32")),
    aligned=frozenset({"x_ptr", "M"}),
    constants=(("BLOCK", (128, 64, 32)), ("ACT", "relu"), ("HAS_BIAS", True), ("SLOPE", 0.5)),
    num_warps=8,
    num_stages=2,
    is_exact=False,
)
KERNEL = CompiledKernel(
    spec=SPEC,
    symbol="gemm_kernel_0d1d",
    cubins={80: b"\x7fELF80", 90: b"\x7fELF90\x00\xff"},
    shared_bytes={80: 65536, 90: 98304},
    extra_pointers=2,
    registers=128,
    spills=3,
    overlaps=True,
    facts={"ptx_version": 87},
)


def small_program(**changes) -> Program:
    key = kernel_key(SPEC)
    steps = (
        Step(
            "gemm",
            "a/b",
            ("x", "", "x#int8"),
            ("h",),
            {"lo": -math.inf, "n": [1, {"k": None}]},
            ("w/é", "s"),
            (key,),
        ),
        Step("host", "r", ("h",), ("n",), is_host=True),
        Step("nodes", "q", ("h", "n"), ("y", ""), {"nodes": ["q"]}, reads_values=True),
    )
    values = {
        "inputs": (("x", "float16"), ("x#int8", "int8")),
        "outputs": (("out", "y", "float32"),),
        "steps": steps,
        "weights": {
            "w/é": np.arange(6, dtype=np.float16).reshape(2, 3),
            "s": np.array(2, ml_dtypes.bfloat16),
        },
        "kernels": {key: KERNEL},
        "nodes": b"\x08\x0a",
        "notes": {"tactics": {"a/b": "gemm 128x64"}, "time_ms": 0.5},
    }
    return Program(**{**values, **changes})


def assert_same(found: Program, want: Program) -> None:
    for field in fields(Program):
        if field.name not in ("weights", "coded"):
            assert getattr(found, field.name) == getattr(want, field.name), field.name
    assert not found.coded
    assert found.weights.keys() == want.weights.keys()
    for key, array in want.weights.items():
        assert (found.weights[key].dtype, found.weights[key].shape) == (array.dtype, array.shape)
        assert found.weights[key].tobytes() == array.tobytes()


def test_what_is_written_is_what_is_read(tmp_path):
    program = small_program()
    assert_same(program_from_model(program_to_model(program)), program)
    path = tmp_path / "engine.qrt"
    save_plan(replace(make_plan("onnxruntime"), model=program_to_model(program)), path)
    loaded = load_plan(path)
    assert loaded.model.library == "cuda"
    assert_same(program_from_model(loaded.model), program)


def coded_program() -> Program:
    """A program whose weight is codes times scales, as a kernel reads it."""
    rng = np.random.default_rng(3)
    codes, scale = rng.integers(-127, 128, (40, 300)).astype(np.int8), rng.uniform(0.1, 0.2, 40)
    codes[:, 0] = 127
    floats = codes.astype(np.float32) * scale.astype(np.float32)[:, None]
    return small_program(weights={**small_program().weights, "w/é": floats.astype(np.float16)})


def test_weights_that_are_codes_times_scales_are_held_as_codes(tmp_path):
    program, path = coded_program(), tmp_path / "engine.qrt"
    model = program_to_model(program)
    assert model.weights["weight/w/é"].dtype == np.int8
    assert model.weights["scale/w/é"].shape == (40,)
    save_plan(replace(make_plan("onnxruntime"), model=model), path)
    assert path.stat().st_size < 0.6 * program.weights["w/é"].nbytes + 4000
    found = program_from_model(load_plan(path).model)
    assert found.weights.keys() == {"s"}
    weight = found.coded["w/é"]
    assert (weight.dtype, weight.axis) == ("float16", 0)
    again = (weight.codes.astype(np.float32) * weight.scale[:, None]).astype(np.float16)
    assert np.array_equal(again.view(np.uint16), program.weights["w/é"].view(np.uint16))
    assert program_to_model(found).graph == model.graph, "what was read is written as it was"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="damaged"):
        load_plan(path)


def test_small_weights_that_are_equal_are_looked_at_once(monkeypatch):
    """Of the same type and shape; each has its codes all the same."""
    looked = []
    inner = program_json.as_codes
    monkeypatch.setattr(program_json, "as_codes", lambda weight: looked.append(weight) or inner(weight))
    ones = np.ones(16, np.float32)
    weights = {"a": ones, "b": ones.copy(), "c": ones.reshape(4, 4), "d": ones.astype(np.float16), "e": -ones}
    program = small_program(steps=(), outputs=(), weights=weights)
    read = program_from_model(program_to_model(program))
    assert len(looked) == 4
    for key, weight in weights.items():
        coded = read.coded[key]
        floats = (coded.codes * coded.scale.reshape(coded.scale_shape())).astype(coded.dtype)
        np.testing.assert_array_equal(floats, weight, strict=True)


@pytest.mark.parametrize(
    "row",
    [["float64", 0], ["float16", 1], ["float16", None], ["float16", 7], ["float16", "0"], ["float16"], 3],
)
def test_damaged_rows_of_codes_are_found(row: object):
    model = program_to_model(coded_program())
    document = json.loads(model.graph)
    document["coded"]["w/é"] = row
    with pytest.raises(ModelError, match="cannot use the program"):
        program_from_model(replace(model, graph=json.dumps(document).encode()))


@pytest.mark.parametrize("name", ["weight/w/é", "scale/w/é"])
def test_codes_without_scales_and_scales_without_codes_are_found(name: str):
    model = program_to_model(coded_program())
    weights = {key: array for key, array in model.weights.items() if key != name}
    with pytest.raises(ModelError, match="cannot use the program"):
        program_from_model(replace(model, weights=weights))


def test_a_program_without_anything():
    empty = Program((), (), (), {}, {})
    assert_same(program_from_model(program_to_model(empty)), empty)


def test_equal_programs_give_equal_bytes():
    program = small_program()
    other = small_program(
        weights=dict(reversed(program.weights.items())), notes=dict(reversed(program.notes.items()))
    )
    first, second = program_to_model(program), program_to_model(other)
    assert first.graph == second.graph
    assert list(first.weights) == list(second.weights)


def test_what_is_not_json_is_not_written():
    with pytest.raises(InternalError, match="not JSON"):
        program_to_model(small_program(notes={"a": object()}))


def changed(edit) -> ModelError:
    """The error of reading a program whose JSON was edited."""
    model = program_to_model(small_program())
    document = json.loads(model.graph)
    edit(document)
    with pytest.raises(ModelError, match="cannot use the program") as error:
        program_from_model(replace(model, graph=json.dumps(document).encode()))
    return error.value


KEY = kernel_key(SPEC)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.pop("steps"),
        lambda d: d.pop("notes"),
        lambda d: d["steps"][0].pop("runner"),
        lambda d: d["steps"][0].update(runner=3),
        lambda d: d["steps"][0].update(inputs="x"),
        lambda d: d["steps"][0].update(is_host=1),
        lambda d: d["steps"][0].update(options=[]),
        lambda d: d["steps"].append(7),
        lambda d: d["inputs"].append(["x"]),
        lambda d: d["outputs"].append(["x", "y", 4]),
        lambda d: d["kernels"][KEY].update(extra_pointers=-1),
        lambda d: d["kernels"][KEY].update(symbol=None),
        lambda d: d["kernels"][KEY]["spec"].pop("family"),
        lambda d: d["kernels"][KEY]["spec"].update(num_warps=0),
        lambda d: d["kernels"][KEY]["shared_bytes"].pop("90"),
        lambda d: d["kernels"][KEY]["shared_bytes"].update({"ninety": 1}),
        lambda d: d["kernels"].pop(KEY),
    ],
)
def test_damage_is_found(edit):
    changed(edit)


def test_parts_that_do_not_belong_together():
    def reads_the_unmade(document):
        document["steps"][1]["inputs"] = ["later"]

    assert "'later'" in str(changed(reads_the_unmade))
    assert "'gone'" in str(changed(lambda d: d["steps"][0]["weights"].append("gone")))
    assert "'nowhere'" in str(changed(lambda d: d["outputs"][0].__setitem__(1, "nowhere")))
    model = program_to_model(small_program())
    weights = {name: array for name, array in model.weights.items() if not name.endswith("/90")}
    with pytest.raises(ModelError, match="cannot use the program"):
        program_from_model(replace(model, weights=weights))
    for graph in (b"", b"[]", b"\xff", b"{}", b"[" * 100_000):
        with pytest.raises(ModelError, match="cannot use the program"):
            program_from_model(replace(model, graph=graph))


def planned_program() -> Program:
    """A program with a step that runs a plan of cuDNN's."""
    step = Step("cudnn_graph", "c", ("x",), ("h", "c/workspace"), {"graph": {}}, plans=("cudnn.0",))
    plan = CudnnPlan(b"{i\x10\x00machine code" * 999, 4096, 91900, "NVIDIA H200")
    first, *others = small_program().steps
    return small_program(steps=(replace(first, outputs=("a",)), step, *others), plans={"cudnn.0": plan})


def test_plans_of_cudnn_are_in_the_file(tmp_path):
    program = planned_program()
    assert_same(program_from_model(program_to_model(program)), program)
    save_plan(replace(make_plan("onnxruntime"), model=program_to_model(program)), tmp_path / "m.qrt")
    assert_same(program_from_model(load_plan(tmp_path / "m.qrt").model), program)
    assert b"machine code" not in (tmp_path / "m.qrt").read_bytes(), "it is compressed"


def test_a_plan_that_is_not_there_is_damage():
    model = program_to_model(planned_program())
    without = {name: array for name, array in model.weights.items() if not name.startswith("plan/")}
    with pytest.raises(ModelError, match="cannot use the program"):
        program_from_model(replace(model, weights=without))
    document = json.loads(model.graph)
    for change in (
        {},
        {"cudnn.0": {"cudnn": 1, "gpu": "g"}},
        {"cudnn.0": {"cudnn": -1, "gpu": "g", "workspace_bytes": 0}},
    ):
        graph = json.dumps({**document, "plans": change}).encode()
        with pytest.raises(ModelError, match="cannot use the program"):
            program_from_model(replace(model, graph=graph))


def test_a_program_from_before_plans_is_read():
    model = program_to_model(small_program())
    document = json.loads(model.graph)
    del document["plans"]
    for step in document["steps"]:
        del step["plans"]
    assert_same(program_from_model(replace(model, graph=json.dumps(document).encode())), small_program())


def test_kernels_of_before_are_launched_as_they_were():
    model = program_to_model(small_program())
    document = json.loads(model.graph)
    for row in document["kernels"].values():
        assert row.pop("overlaps")
    found = program_from_model(replace(model, graph=json.dumps(document).encode()))
    assert [kernel.overlaps for kernel in found.kernels.values()] == [False]
