# SPDX-License-Identifier: Apache-2.0
"""The executor on the CPU: whole programs, shapes that change, contexts in threads, engine files."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from quantrt.errors import DataError, DeviceError, ModelError, UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import Gemm
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.runtime.cuda.lane import Lane
from quantrt.runtime.cuda.steps import host_copies
from quantrt.runtime.executor import check_library, open_executor
from tests.plans import make_plan
from tests.programs import node_step, nodes_of, pooled_program, pooled_reference

ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
SHAPES = [(1, 3, 4, 4), (2, 3, 4, 4), (7, 1, 2, 6), (1, 3, 4, 4)]


def on_cpu(program: Program) -> CudaExecutor:
    return CudaExecutor(program, *specs_of(program), device="cpu")


def linear_program(weight: np.ndarray, bias: np.ndarray) -> Program:
    """relu(x @ weight + bias), twice read: as it is and transposed."""
    epilogue = Expression(
        (Operand("accumulator"), Operand("constant", "b")),
        (Instruction("add", (0, 1)), Instruction("const", (), 0.0), Instruction("max", (2, 3))),
        (4,),
        (False,),
    )
    formula = Gemm(("mm", 0), ("mm", 1), "w", False, epilogue)
    options = {"formula": to_json(formula), "outputs": ["float16"]}
    return Program(
        inputs=(("x", "float16"),),
        outputs=(("y", "y", "float32"), ("yt", "yt", "float16")),
        steps=(
            Step("formula", "mm", ("x",), ("y",), options, ("w", "b")),
            node_step("view", ["turn"], ["y"], ["yt"]),
        ),
        weights={"w": weight, "b": bias},
        kernels={},
        nodes=nodes_of("g (float[M, N] y) => (float[N, M] yt) { [turn] yt = Transpose (y) }"),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_shapes_may_change_from_run_to_run(dtype, rng):
    executor = on_cpu(pooled_program(dtype))
    tolerance = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(np.float32)
        given = x.astype(getattr(ml_dtypes, dtype, dtype))
        y = executor.run({"x": given})["y"]
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, pooled_reference(given.astype(np.float32)), rtol=0, atol=tolerance)
    assert executor.compiled_shapes == ()  # nothing is recorded on a CPU


def test_inputs_and_outputs_are_cast_between_the_callers_types_and_the_buffers(rng):
    weight, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((8, 5), (5,)))
    executor = on_cpu(linear_program(weight, bias.astype(np.float32)))
    x = rng.standard_normal((7, 8)).astype(np.float32)
    found = executor.run({"x": x})
    exact = np.maximum(x.astype(np.float16).astype(np.float64) @ weight + bias, 0)
    assert (found["y"].dtype, found["yt"].dtype) == (np.float32, np.float16)
    np.testing.assert_allclose(found["y"], exact, rtol=2**-10, atol=1e-3)
    np.testing.assert_array_equal(found["yt"], found["y"].T.astype(np.float16))


def test_outputs_are_the_callers_own(rng):
    program = Program(
        inputs=(("x", "float32"),),
        outputs=(("x", "x", "float32"), ("y", "y", "float32")),
        steps=(node_step("view", ["turn"], ["x"], ["y"]),),
        weights={},
        kernels={},
        nodes=nodes_of("g (float[M, N] x) => (float[N, M] y) { [turn] y = Transpose (x) }"),
    )
    x = rng.standard_normal((3, 4)).astype(np.float32)
    kept = x.copy()
    x.setflags(write=False)
    found = on_cpu(program).run({"x": x})
    found["x"][:] = 0
    np.testing.assert_array_equal(found["y"], kept.T)
    assert found["y"].flags.writeable
    np.testing.assert_array_equal(x, kept)


def test_outputs_come_in_the_order_that_is_asked_for():
    program = linear_program(np.zeros((2, 3), np.float16), np.zeros(3, np.float32))
    inputs, outputs = specs_of(program)
    executor = CudaExecutor(program, inputs, outputs[::-1], device="cpu")
    assert list(executor.run({"x": np.zeros((1, 2), np.float16)})) == ["yt", "y"]
    with pytest.raises(UsageError, match="no output 'z'"):
        CudaExecutor(program, inputs, [TensorSpec("z", "float32", None)], device="cpu")


def test_threads_and_contexts_do_not_disturb_each_other(rng):
    executor = on_cpu(pooled_program())
    arrays = [rng.standard_normal((n % 5 + 1, 3, 4, 4)).astype(np.float32) for n in range(40)]
    want = [executor.run({"x": x})["y"] for x in arrays]
    contexts = [executor.create_context(), executor.create_context()]

    def run(number: int) -> np.ndarray:
        lane = contexts[number % 3] if number % 3 < 2 else executor
        return lane.run({"x": arrays[number]})["y"]

    with ThreadPoolExecutor(4) as threads:
        for found, expected in zip(threads.map(run, range(40)), want, strict=True):
            np.testing.assert_array_equal(found, expected)
    contexts[0].close()
    contexts[0].close()
    with pytest.raises(UsageError, match="closed"):
        contexts[0].run({"x": arrays[0]})
    np.testing.assert_array_equal(contexts[1].run({"x": arrays[0]})["y"], want[0])


def test_a_closed_executor_says_so():
    executor = on_cpu(pooled_program())
    x = np.zeros((1, 1, 2, 2), np.float32)
    executor.run({"x": x})
    executor.close()
    executor.close()
    with pytest.raises(UsageError, match="closed"):
        executor.run({"x": x})
    with pytest.raises(UsageError, match="closed"):
        executor.create_context()


def test_tensors_in_and_out(rng):
    executor = on_cpu(pooled_program())
    x = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    want = executor.run({"x": x})["y"]
    for given in (torch.from_numpy(x.copy()), x.copy()):  # numpy speaks DLPack
        found = executor.run_device({"x": given})["y"]
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found.numpy(), want)
    with pytest.raises(DataError, match="'x' is not on the engine's device"):
        executor.run_device({"x": torch.zeros(2, 3, 4, 4, device="meta")})
    with pytest.raises(DataError, match="'x' was not given"):
        executor.run_device({})


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_callers_on_other_streams_get_what_they_gave(device, capture, rng):
    program = pooled_program()
    executor = CudaExecutor(program, *specs_of(program), device=device, capture=capture)
    has_streams = device == "cuda"
    streams = (
        [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()] if has_streams else [None]
    )
    given, found = [], []
    for number in range(24):
        stream = streams[number % 7 % len(streams)]
        x = rng.standard_normal(SHAPES[number % 3]).astype(np.float32)
        with torch.cuda.stream(stream) if has_streams else nullcontext():
            lent = executor.run_device({"x": torch.from_numpy(x).to(device)}, copies=False)["y"]
            found.append(lent.clone())
        given.append(x)
        if number % 5 == 0:
            executor.run({"x": rng.standard_normal(SHAPES[0]).astype(np.float32)})
    if has_streams:
        torch.cuda.synchronize()
    for x, y in zip(given, found, strict=True):
        np.testing.assert_allclose(y.cpu().numpy(), pooled_reference(x), rtol=0, atol=1e-5)
    executor.close()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_inputs_are_put_where_they_are_read(device, rng):
    program = pooled_program()
    context = CudaExecutor(program, *specs_of(program), device=device).create_context()
    lent = set()
    for number in range(6):
        shape = SHAPES[number % 2]
        inputs = context.device_inputs({"x": shape})
        x = rng.standard_normal(shape).astype(np.float32)
        inputs["x"].copy_(torch.from_numpy(x))
        y = context.run_device({"x": torch.from_dlpack(inputs["x"])}, copies=False)["y"]
        np.testing.assert_allclose(y.cpu().numpy(), pooled_reference(x), rtol=0, atol=1e-5)
        lent.add((inputs["x"].data_ptr(), y.data_ptr()))
    if device == "cuda":
        assert len(lent) == 2, "one pair of tensors for each set of shapes"
    context.close()


def test_what_cannot_be_run_names_its_region():
    executor = on_cpu(pooled_program())
    with pytest.raises(DataError, match="region of pool"):
        executor.run({"x": np.zeros((4,), np.float32)})
    assert executor.run({"x": np.zeros((1, 1, 2, 2), np.float32)})["y"].shape == (1, 1)


def test_running_out_of_memory_names_the_region_and_what_to_lower(monkeypatch):
    executor = on_cpu(pooled_program())
    steps = executor._opened.steps

    def run(inputs, allocate):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. GPU 0 ...")

    monkeypatch.setattr(steps[0].runner, "run", run, raising=False)
    with pytest.raises(DeviceError, match="region 'region of pool' ran out of memory") as error:
        executor.run({"x": np.zeros((1, 1, 2, 2), np.float32)})
    assert error.value.got == "CUDA out of memory"
    assert "a smaller --batch, fewer contexts" in (error.value.hint or "")


def test_contexts_share_the_weights(rng):
    weight = rng.standard_normal((64, 3)).astype(np.float16)
    executor = on_cpu(linear_program(weight, np.zeros(3, np.float32)))
    before = executor.memory_report()["weight_bytes"]
    contexts = [executor.create_context() for _ in range(3)]
    x = {"x": rng.standard_normal((2, 64)).astype(np.float16)}
    first, *others = [context.run(x)["y"] for context in contexts]
    assert all(np.array_equal(first, other) for other in others)
    assert executor.memory_report()["weight_bytes"] == before == weight.nbytes + 12
    opened = {id(context._lane._opened.assets.weights) for context in contexts}
    assert opened == {id(executor._opened.assets.weights)}


def test_an_empty_batch():
    found = on_cpu(linear_program(np.ones((8, 5), np.float16), np.zeros(5, np.float32))).run(
        {"x": np.zeros((0, 8), np.float16)}
    )
    assert (found["y"].shape, found["yt"].shape) == ((0, 5), (5, 0))


def test_a_watched_run_has_a_row_per_step(rng):
    executor = on_cpu(pooled_program())
    x = {"x": rng.standard_normal((2, 3, 4, 4)).astype(np.float32)}
    found = executor.watch(x, runs=3, warmup_runs=1)
    assert len(found) == 3
    for rows in found:
        assert [region for region, _ in rows] == [
            "region of pool", "region of shape", "region of flat", "region of soft"
        ]  # fmt: skip
        assert all(time_ms > 0 for _, time_ms in rows)
    assert executor.memory_report()["recordings"] == []


def test_what_steps_copy_to_a_device_is_copied_before_they_are_watched(rng, monkeypatch):
    passes = []

    class Counted(host_copies.ReuseCopies):
        def __init__(self, copies):
            passes.append(list(copies))
            super().__init__(copies)

    monkeypatch.setattr(host_copies, "_copies", lambda func, args, kwargs: func is torch.Tensor.to)
    monkeypatch.setattr("quantrt.runtime.cuda.executor.ReuseCopies", Counted)
    x = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    on_cpu(pooled_program()).watch({"x": x}, runs=2, warmup_runs=1)
    first, *others = passes
    assert np.array_equal(first[0], x)  # the input, which is no step's
    assert len(others) == 2
    assert all(one is other for copies in others for one, other in zip(copies, first, strict=True))


def test_a_prepared_run_computes_whenever_it_is_called(rng, monkeypatch):
    executor = on_cpu(pooled_program())
    x = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    run = executor.prepare({"x": x})
    found: list[np.ndarray] = []
    run_eagerly = Lane._run_eagerly

    def kept(*args: object) -> dict[str, torch.Tensor]:
        outputs = run_eagerly(*args)
        found.append(outputs["y"].numpy().copy())
        return outputs

    monkeypatch.setattr(Lane, "_run_eagerly", kept)
    assert run() is None and run() is None
    assert len(found) == 2
    for y in found:
        np.testing.assert_allclose(y, pooled_reference(x), rtol=1e-6)


def test_weights_are_counted_and_shared(rng):
    weight = rng.standard_normal((64, 3)).astype(np.float16)
    executor = on_cpu(linear_program(weight, np.zeros(3, np.float32)))
    report = executor.memory_report()
    assert report["weight_bytes"] == weight.nbytes + 12
    assert report["recordings"] == []
    assert report["memory_after_bytes"] == 0


@pytest.mark.parametrize("runner", ["nothing_like_it", "../../evil", "os.path", ""])
def test_runners_are_modules_of_this_package_alone(runner):
    step = Step(runner, "r", ("x",), ("y",))
    with pytest.raises(ModelError, match="needs a runner") as error:
        on_cpu(pooled_program(steps=(step,)))
    assert runner in str(error.value)


def test_steps_that_do_not_suit_their_runner():
    step = Step("nodes", "r", ("x",), ("y",), {"nodes": ["pool"]})
    with pytest.raises(ModelError, match="'r' does not suit its runner 'nodes'"):
        on_cpu(pooled_program(steps=(step,)))


# ---- engine files


def test_an_engine_file_holds_the_program(tmp_path, rng):
    weight = rng.standard_normal((8, 5)).astype(ml_dtypes.bfloat16)
    program = linear_program(weight, np.ones(5, np.float32))
    plan = replace(make_plan("onnxruntime"), model=program_to_model(program))
    path = tmp_path / "engine.qrt"
    save_plan(plan, path)
    loaded = program_from_model(load_plan(path).model)
    x = rng.standard_normal((3, 8)).astype(np.float16)
    want, found = (on_cpu(one).run({"x": x}) for one in (program, loaded))
    for name in ("y", "yt"):
        np.testing.assert_array_equal(found[name], want[name])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_an_engine_of_one_cannot_be_opened():
    with pytest.raises(DeviceError, match="no usable GPU"):
        check_library("cuda")
    plan = make_plan("onnxruntime")
    with pytest.raises(DeviceError, match="no usable GPU"):
        open_executor(program_to_model(pooled_program()), plan.options)


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="'torch' is not installed") as error:
        check_library("cuda")
    assert "quantrt[cuda]" in str(error.value)
