# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes, views and host values as steps; on the device "meta" a value that is read is an error."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from quantrt.errors import DataError, ModelError
from quantrt.plan.program import codes_of
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import host, nodes, view
from tests.programs import node_step, nodes_of

CPU, META = torch.device("cpu"), torch.device("meta")
RUNNERS = {"nodes": nodes, "view": view, "host": host}


def no_memory(*args: Any, **kwargs: Any) -> torch.Tensor:
    raise AssertionError("these runners make their own tensors")


def assets_of(text: str, constants: dict | None = None, device: torch.device = CPU, **weights) -> Assets:
    graph = ir.from_proto(onnx.load_model_from_string(nodes_of(text, constants)))
    return Assets(device, weights, {}, graph)


def run(assets: Assets, step, *inputs):
    with torch.no_grad():
        return RUNNERS[step.runner].open_runner(step, assets).run(inputs, no_memory)


def one(
    text: str, inputs: str, constants: dict | None = None, *, given, dtype: str, compute="float32", device=CPU
):
    """The only output of node "n", its value called y."""
    step = node_step("nodes", ["n"], inputs.split(), ["y"], compute=compute, outputs=[dtype])
    return run(assets_of(text, constants, device), step, *given)[0]


# ---- precision


def test_half_is_computed_in_float32(rng):
    x = torch.from_numpy(rng.standard_normal((3, 400)).astype(np.float32)).to(torch.float16) * 30
    text = "g (float[N, M] x) => (float[N] y) { [n] y = ReduceL2 <keepdims = 0> (x, axes) }"
    y = one(text, "x", {"axes": np.array([1], np.int64)}, given=[x], dtype="float16")
    exact = x.double().square().sum(1).sqrt()  # the squares are beyond float16
    assert y.dtype == torch.float16
    assert torch.equal(y, exact.float().to(torch.float16))
    naive = one(text, "x", {"axes": np.array([1], np.int64)}, given=[x], dtype="float16", compute="native")
    assert not torch.equal(naive, y)


@pytest.mark.parametrize("storage", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "node",
    ["MaxPool <kernel_shape = [2, 2]> (x)", "GlobalAveragePool (x)", "Softmax (x)", "Relu (x)",
     "AveragePool <kernel_shape = [2, 2]> (x)", "Concat <axis = 1> (x, c)", "Pad (x, pads, fill)",
     "Resize <mode = \"linear\"> (x, , scales)", "Transpose (x)", "Gather <axis = 2> (x, index)"],
)  # fmt: skip
def test_native_operators_round_once(node, storage, rng):
    constants = {
        "c": rng.standard_normal((2, 1, 4, 4)).astype(np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 2], np.int64),
        "fill": np.array(0.5, np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "index": np.array([3, 0, -1], np.int64),
    }
    x = torch.from_numpy(rng.standard_normal((2, 3, 4, 4)).astype(np.float32)).to(storage)
    text = f"g (float[A, B, C, D] x) => (float y) {{ [n] y = {node} }}"
    name = str(storage).removeprefix("torch.")
    y = one(text, "x", constants, given=[x], dtype=name)
    wide = one(text, "x", constants, given=[x.float()], dtype="float32")
    assert y.dtype == storage
    epsilon = torch.finfo(storage).eps
    assert torch.allclose(y.float(), wide, rtol=epsilon, atol=epsilon)


def test_integers_stay_integers():
    text = "g (int64[N] x) => (int64[N] y) { [n] y = Mul (x, c) }"
    big = torch.tensor([2**53 + 1, -3])
    y = one(text, "x", {"c": np.array(3, np.int64)}, given=[big], dtype="int64")
    assert y.tolist() == [3 * 2**53 + 3, -9]


# ---- int8 codes


@pytest.mark.parametrize(
    "op", ["MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>", "GlobalMaxPool"]
)
def test_codes_go_through_pools_exactly(op, rng):
    codes = torch.from_numpy(rng.integers(-128, 128, (2, 3, 7, 7)).astype(np.int8))
    codes[0, 0], codes[1, 2] = -128, 127
    step = node_step("nodes", ["n"], [codes_of("x")], [codes_of("y")], compute="float32", outputs=["int8"])
    text = f"g (float[A, B, C, D] x) => (float y) {{ [n] y = {op} (x) }}"
    (y,) = run(assets_of(text), step, codes.to(memory_format=torch.channels_last))
    wide = one(text, "x", given=[codes.double()], dtype="float64")
    assert y.dtype == torch.int8
    assert torch.equal(y.double(), wide)


def test_codes_are_only_moved():
    text = "g (float[N] x) => (float[N] y) { [n] y = Exp (x) }"
    step = node_step("nodes", ["n"], [codes_of("x")], ["y"], compute="float32", outputs=["float32"])
    with pytest.raises(ModelError, match="run on codes") as error:
        nodes.open_runner(step, assets_of(text))
    assert error.value.got == "Exp"


# ---- values are not read from the device

CONSTANTS = {
    "axes": np.array([1], np.int64),
    "two": np.array([2], np.int64),
    "shape": np.array([0, 0, -1], np.int64),
    "pads": np.array([0, 1, 0, 0, 0, 0, 2, 0], np.int64),
    "index": np.array([[0], [1]], np.int64),
    "places": np.array([[0, 0], [1, 2]], np.int64),
    "updates": np.ones((2, 4, 4), np.float32),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "starts": np.array([3], np.int64),
    "ends": np.array([-9], np.int64),
    "back": np.array([-1], np.int64),
    "reps": np.array([1, 2, 1, 1], np.int64),
    "whole": np.array([2, 3, 4, 4], np.int64),
    "low": np.array(-1, np.float32),
    "big": np.ones((2, 3, 4, 4), np.float32),
    "k": np.array(1, np.int64),
}


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("ReduceSum (x, axes)", (2, 1, 4, 4)),
        ("TopK <axis = 2> (x, two)", (2, 3, 2, 4)),
        ("Reshape (x, shape)", (2, 3, 16)),
        ("Pad (x, pads, low)", (2, 4, 6, 4)),
        ("GatherND (x, places)", (2, 4, 4)),
        ("ScatterND (x, places, updates)", (2, 3, 4, 4)),
        ("Gather (x, index)", (2, 1, 3, 4, 4)),
        ("Resize <mode = \"nearest\"> (x, , scales)", (2, 3, 8, 8)),
        ("Slice (x, starts, ends, axes, back)", (2, 3, 4, 4)),
        ("Tile (x, reps)", (2, 6, 4, 4)),
        ("Expand (x, whole)", (2, 3, 4, 4)),
        ("Trilu (x, k)", (2, 3, 4, 4)),
        ("CumSum (x, k)", (2, 3, 4, 4)),
        ("Clip (x, low)", (2, 3, 4, 4)),
        ("Where (mask, x, big)", (2, 3, 4, 4)),
        ("Split <axis = 1, num_outputs = 2> (x)", (2, 2, 4, 4)),
        ("InstanceNormalization (x, ones, ones)", (2, 3, 4, 4)),
        ("MaxPool <kernel_shape = [2, 2], ceil_mode = 1, strides = [2, 2]> (x)", (2, 3, 2, 2)),
    ],
)  # fmt: skip
def test_nothing_is_read_back(node, shape):
    constants = {**CONSTANTS, "mask": np.ones((4, 4), np.bool_), "ones": np.ones(3, np.float32)}
    text = f"g (float[A, B, C, D] x) => (float y) {{ [n] y = {node} }}"
    if node.startswith(("TopK", "Split")):
        text = text.replace("[n] y =", "[n] y, z =")
    x = torch.empty(2, 3, 4, 4, dtype=torch.float16, device=META)
    y = one(text, "x", constants, given=[x], dtype="float16", device=META)
    assert (y.device, y.dtype, tuple(y.shape)) == (META, torch.float16, shape)


def test_a_number_on_the_host_and_a_tensor_on_the_device_meet_on_the_device():
    text = """g (float[N] x, int64[1] s) => (float[N] y) {
        [f] f = Cast <to = 1> (s)
        [q] q = Sqrt (f)
        [d] y = Div (x, q)
    }"""
    step = node_step("nodes", ["f", "q", "d"], ["x", "s"], ["y"], compute="float32", outputs=["float16"])
    x, s = torch.empty(5, dtype=torch.float16, device=META), torch.tensor([64])
    (y,) = run(assets_of(text, device=META), step, x, s)
    assert y.device == META
    (y,) = run(assets_of(text), step, torch.full((5,), 16.0, dtype=torch.float16), s)
    assert y.tolist() == [2.0] * 5


# ---- weights, absent inputs, several outputs


def test_weights_of_the_program_stand_for_constants(rng):
    table = torch.from_numpy(rng.standard_normal((10, 4)).astype(np.float16))
    text = "g (int64[N] ids, float[V, D] table) => (float[N, D] y) { [n] y = Gather (table, ids) }"
    step = node_step(
        "nodes",
        ["n"],
        ["ids"],
        ["y"],
        compute="float32",
        outputs=["float16"],
        constants=["table"],
        weights=("t",),
    )
    (y,) = run(assets_of(text, t=table), step, torch.tensor([3, -1, 0]))
    assert torch.equal(y, table[[3, 9, 0]])
    nameless = node_step(
        "nodes", ["n"], ["ids"], ["y"], compute="float32", outputs=["float16"], weights=("t",)
    )
    with pytest.raises(ModelError, match="does not name its weights"):
        nodes.open_runner(nameless, assets_of(text, t=table))


def test_weights_are_brought_to_float32_where_nodes_compute_in_it(rng):
    weight = torch.from_numpy(rng.standard_normal((3, 5)).astype(np.float16))
    text = "g (float[N, K] x, float[K, M] w) => (float[N, M] y) { [n] y = MatMul (x, w) }"
    step = node_step(
        "nodes", ["n"], ["x"], ["y"], compute="float32", outputs=["float16"], constants=["w"], weights=("w",)
    )
    x = torch.from_numpy(rng.standard_normal((41, 3)).astype(np.float16))
    (y,) = run(assets_of(text, w=weight), step, x)
    exact = x.double() @ weight.double()
    assert torch.allclose(y.double(), exact, rtol=2.0**-11, atol=2.0**-14)


def test_several_outputs_one_of_them_absent():
    text = "g (float[N] x) => (float[2] v, int64[2] i) { [n] v, i = TopK (x, k) }"
    assets = assets_of(text, {"k": np.array([2], np.int64)})
    step = node_step("nodes", ["n"], ["x"], ["", "i"], compute="float32", outputs=["float16", "int64"])
    values, indices = run(assets, step, torch.tensor([1.0, 5.0, 3.0]))
    assert values is None
    assert indices.tolist() == [1, 2]


def test_if_captures_what_is_around_it():
    text = """g (float[N] x, bool c) => (float[N] y) {
        [n] y = If (c) <then_branch = a () => (float[N] p) { p = Add (x, one) },
                        else_branch = b () => (float[N] q) { q = Neg (x) }>
    }"""
    assets = assets_of(text, {"one": np.array(1, np.float32)})
    step = node_step("nodes", ["n"], ["x", "c"], ["y"], compute="float32", outputs=["float32"])
    x = torch.tensor([1.0, 2.0])
    assert run(assets, step, x, torch.tensor(True))[0].tolist() == [2.0, 3.0]
    assert run(assets, step, x, torch.tensor(False))[0].tolist() == [-1.0, -2.0]


def test_nodes_that_are_not_there():
    with pytest.raises(ModelError, match="lacks nodes") as error:
        nodes.open_runner(
            node_step("nodes", ["m"], ["x"], ["y"]),
            assets_of("g (float[N] x) => (float[N] y) { [n] y = Neg (x) }"),
        )
    assert error.value.got == "m"
    with pytest.raises(ModelError, match="a program that has none"):
        nodes.open_runner(node_step("nodes", ["m"], ["x"], ["y"]), Assets(CPU, {}, {}))


# ---- views and host values


@pytest.mark.parametrize(
    ("node", "is_view"),
    [
        ("Reshape (x, shape)", True),
        ("Transpose <perm = [0, 2, 3, 1]> (x)", True),
        ("Slice (x, axes, two, axes)", True),
        ("Unsqueeze (x, axes)", True),
        ("Flatten (x)", True),
        ("Identity (x)", True),
        ("Slice (x, starts, ends, axes, back)", False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_views_share_memory_where_they_can(node, is_view, dtype, rng):
    text = f"g (float[A, B, C, D] x) => (float y) {{ [n] y = {node} }}"
    x = torch.from_numpy(rng.integers(-9, 9, (2, 3, 4, 4))).to(dtype)
    name = codes_of("x") if dtype == torch.int8 else "x"
    step = node_step("view", ["n"], [name], [name.replace("x", "y")])
    (y,) = run(assets_of(text, CONSTANTS), step, x)
    assert (y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == is_view
    wide = one(text, "x", CONSTANTS, given=[x.float()], dtype="float32")
    assert y.dtype == dtype
    assert torch.equal(y.float(), wide)


def test_parts_of_a_split_are_views():
    text = "g (float[A, B] x) => (float[A, C] p, float[A, D] q) { [n] p, q = Split <axis = 1> (x, sizes) }"
    assets = assets_of(text, {"sizes": np.array([1, 4], np.int64)})
    x = torch.arange(10.0).reshape(2, 5)
    p, q = run(assets, node_step("view", ["n"], ["x"], ["p", "q"]), x)
    assert q.data_ptr() == x.data_ptr() + 4
    assert torch.equal(torch.cat([p, q], 1), x)


SIZES = """g (float[N, M] x, int64[2] other) => (int64[3] t) {
    [a] s = Shape (x)
    [b] m = Gather (s, one)
    [c] h = Div (m, two)
    [d] t = Concat <axis = 0> (h, other)
}"""


def test_host_values_need_no_more_than_shapes():
    assets = assets_of(SIZES, {"one": np.array([1], np.int64), "two": np.array([2], np.int64)})
    step = node_step("host", ["a", "b", "c", "d"], ["x", "other"], ["t"], is_host=True)
    (t,) = run(assets, step, torch.empty(3, 10, device=META), torch.tensor([7, -1]))
    assert (t.device, t.tolist()) == (CPU, [5, 7, -1])


def test_a_host_step_that_would_read_values_is_an_error():
    text = "g (float[N] x) => (float[N] y) { [n] y = Neg (x) }"
    with pytest.raises(DataError, match="on the host"):
        run(
            assets_of(text), node_step("host", ["n"], ["x"], ["y"], is_host=True), torch.empty(3, device=META)
        )
