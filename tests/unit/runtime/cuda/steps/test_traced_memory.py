# SPDX-License-Identifier: Apache-2.0
"""A pass in one arena computes what a pass in memory of its own computes, views and all."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantrt.errors import DeviceError, InternalError
from quantrt.plan.program import Program, Step
from quantrt.runtime.cuda.steps import recording
from quantrt.runtime.cuda.steps.arena import ArenaPlan
from quantrt.runtime.cuda.steps.steps import FreshMemory, OpenProgram, open_program, run_steps
from quantrt.runtime.cuda.steps.traced_memory import ArenaMemory, TracedMemory

CPU = torch.device("cpu")
KINDS = ("add", "nhwc", "own", "view", "both", "host", "drop")


class Toy:
    """A runner whose options say how it makes its outputs from the sum of its inputs."""

    def __init__(self, step, assets):
        self.kind = step.options["kind"]
        self.size = step.options.get("size", 8)

    def run(self, inputs, allocate):
        if self.kind == "view":
            return [inputs[0].transpose(-1, -2)]
        if self.kind == "host":
            return [torch.tensor(inputs[0].shape)]
        total = sum(x.float().sum() for x in inputs)
        shape = (1, 3, self.size, 2)
        if self.kind == "own":
            return [torch.full(shape, float(total))]
        outputs = [allocate(0, shape, torch.float32, channels_last=self.kind == "nhwc")]
        if self.kind == "both":
            outputs.append(allocate(1, (self.size,), torch.float16))
        for number, output in enumerate(outputs):
            output.copy_((torch.arange(output.numel()).reshape(output.shape) % 7 + total + number) % 31)
        return outputs


def opened(steps, outputs) -> OpenProgram:
    program = Program((("x", "float32"),), tuple((n, n, "float32") for n in outputs), tuple(steps), {}, {})
    return open_program(program, CPU, Toy)


def passes(program: OpenProgram) -> tuple[list[dict], ArenaPlan]:
    """The outputs of a fresh, a traced and an arena pass."""
    found = []
    traced = TracedMemory(program)
    for memory in (FreshMemory(CPU), traced, None):
        if memory is None:
            slots, plan = traced.plan()
            arena = torch.full((plan.size_bytes,), 0x7F, dtype=torch.uint8)
            memory = ArenaMemory(program, slots, arena)
        values = {"x": torch.arange(12, dtype=torch.float32).reshape(1, 3, 2, 2)}
        run_steps(program, values, memory)
        found.append(values)
    return found, plan


@st.composite
def programs(draw):
    """Random steps that each read a few of the buffers before them."""
    steps, buffers = [], ["x"]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(KINDS))
        count = 1 if kind in ("view", "host") else draw(st.integers(1, 3))
        read = draw(st.lists(st.sampled_from(buffers), min_size=count, max_size=count, unique=False))
        if kind == "view":
            read = [draw(st.sampled_from([b for b in buffers if not b.startswith(("h", "s"))]))]
        letter = {"host": "h", "drop": "d"}.get(kind, "b")
        made = [f"{letter}{number}"] + ([f"s{number}"] if kind == "both" else [])
        options = {"kind": "add" if kind == "drop" else kind, "size": draw(st.integers(1, 200))}
        steps.append(Step("toy", f"r{number}", tuple(read), tuple(made), options))
        if kind != "drop":
            buffers += made
    count = draw(st.integers(1, min(3, len(buffers))))
    return steps, draw(st.lists(st.sampled_from(buffers), min_size=count, max_size=count, unique=True))


@given(programs())
def test_the_arena_changes_no_result(drawn):
    program = opened(*drawn)
    (fresh, traced, placed), plan = passes(program)
    assert set(fresh) >= {name for name, _, _ in program.program.outputs}
    for name, _, _ in program.program.outputs:
        assert fresh[name].stride() == placed[name].stride() == traced[name].stride()
        assert torch.equal(fresh[name], traced[name])
        assert torch.equal(fresh[name], placed[name])
    assert plan.size_bytes <= plan.sum_bytes


def test_a_view_keeps_the_memory_that_it_looks_at():
    # b0 itself is read last by step 1; its view v1 until step 4. b2 and b3 may not take its place.
    steps = [
        Step("toy", "r0", ("x",), ("b0",), {"kind": "add", "size": 64}),
        Step("toy", "r1", ("b0",), ("v1",), {"kind": "view"}),
        Step("toy", "r2", ("x",), ("b2",), {"kind": "add", "size": 64}),
        Step("toy", "r3", ("b2",), ("b3",), {"kind": "add", "size": 64}),
        Step("toy", "r4", ("v1", "b3"), ("y",), {"kind": "add", "size": 64}),
    ]
    (fresh, _, placed), plan = passes(opened(steps, ["y"]))
    assert torch.equal(fresh["y"], placed["y"])
    size = 256 * math.ceil(64 * 6 * 4 / 256)
    assert (plan.sum_bytes, plan.size_bytes) == (4 * size, 3 * size)


def test_what_is_read_no_more_is_let_go():
    steps = [
        Step("toy", f"r{n}", (f"b{n - 1}" if n else "x",), (f"b{n}",), {"kind": "own"}) for n in range(4)
    ]
    (fresh, _, _), _ = passes(opened(steps, ["b3"]))
    assert set(fresh) == {"b3"}


def test_a_step_that_asks_for_other_memory_than_before_is_an_error():
    program = opened([Step("toy", "r0", ("x",), ("y",), {"kind": "add"})], ["y"])
    memory = ArenaMemory(program, {(0, 0): (0, 256)}, torch.zeros(512, dtype=torch.uint8))
    allocate = memory.allocate_for(0)
    assert allocate(0, (64,), torch.float32).numel() == 64
    with pytest.raises(InternalError, match="r0"):
        allocate(0, (65,), torch.float32)
    with pytest.raises(InternalError, match="r0"):
        allocate(1, (1,), torch.float32)


def test_memory_for_one_output_is_asked_for_once():
    traced = TracedMemory(opened([Step("toy", "r0", ("x",), ("y",), {"kind": "add"})], ["y"]))
    traced.allocate_for(0)(0, (3,), torch.float32)
    with pytest.raises(InternalError, match="twice"):
        traced.allocate_for(0)(0, (3,), torch.float32)


def test_activations_without_room_name_the_largest_region_and_what_to_lower(monkeypatch):
    steps = [
        Step("toy", "small", ("x",), ("a",), {"kind": "add", "size": 4}),
        Step("toy", "large", ("a",), ("b",), {"kind": "add", "size": 1 << 17}),
        Step("toy", "last", ("b",), ("c",), {"kind": "add", "size": 4}),
    ]

    def arena(size_bytes, **options):
        assert options["dtype"] is torch.uint8 and size_bytes > 3 << 20
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 MiB. GPU 0 ...")

    program = opened(steps, ["c"])
    traced = TracedMemory(program)
    run_steps(program, {"x": torch.ones(1, 3, 2, 2)}, traced)
    _, plan = traced.plan()
    monkeypatch.setattr(recording.torch, "empty", arena)
    with pytest.raises(DeviceError, match="the largest 3.0 MiB of region 'large'") as error:
        recording._arena(plan.size_bytes, CPU, traced.largest)
    assert error.value.got == "CUDA out of memory"
    assert "a smaller --batch, fewer contexts" in (error.value.hint or "")
