# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes are in a file, loading it gives a model or a QuantRtError, soon and in little memory."""

import random
import signal
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quantrt.errors import QuantRtError
from quantrt.model.load import load_model
from tests.unit.model.check_pass import proto_of

TIME_LIMIT_S = 20
EXAMPLES = 400

_RNG = np.random.default_rng(7)
GOOD = proto_of(
    "[conv] c = Conv<pads=[1,1,1,1],group=2>(x, w, bias)"
    " [norm] n = BatchNormalization<epsilon=0.01>(c, g, g, g, g)"
    " [shape] s = Shape(n) [pick] i = Gather(s, one)"
    " [un] u = Unsqueeze(i, axes) [cat] t = Concat<axis=0>(minus, u)"
    " [re] r = Reshape(n, t) k = Constant<value = float[2] {1, 2}>() [big] e = ConstantOfShape(size)"
    " [grow] o = Expand(e, size) [add] a = Add(r, o) [drop] d, mask = Dropout(a)"
    " [if] y = If (go) <then_branch = yes () => (float[...] p) { p = Relu(d) },"
    " else_branch = no () => (float[...] q) { q = Identity(d) }>",
    inputs="float[N,4,6,6] x",
    weights={
        "w": _RNG.standard_normal((6, 2, 3, 3)).astype(np.float32),
        "bias": np.ones(6, np.float32),
        "g": np.ones(6, np.float32),
        "one": np.int64(1),
        "axes": np.array([0]),
        "minus": np.array([-1]),
        "size": np.array([6]),
        "go": np.array(True),
    },
).SerializeToString()


@contextmanager
def time_limit(seconds):
    def stop(*_):
        raise TimeoutError(f"loading took over {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def load_bytes(content, folder):
    path = folder / "damaged.onnx"
    path.write_bytes(content)
    with time_limit(TIME_LIMIT_S):
        try:
            load_model(path)
        except QuantRtError:
            return False
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def test_the_undamaged_file_loads(folder):
    assert load_bytes(GOOD, folder)


positions = st.integers(0, len(GOOD) - 1)


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(size=positions)
def test_truncated_anywhere(folder, size):
    assert not load_bytes(GOOD[:size], folder)


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(flips=st.lists(st.tuples(positions, st.integers(1, 255)), min_size=1, max_size=4))
def test_bytes_flipped_anywhere(folder, flips):
    content = bytearray(GOOD)
    for position, mask in flips:
        content[position] ^= mask
    load_bytes(bytes(content), folder)


EXTREMES = (0, 1, -1, 2, 7, 2**31, 2**62, -(2**63), 10**9)
OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


def mutate(proto, rng):
    """Change one thing in a way that keeps every name defined, so that the damage gets far."""
    graph, node = proto.graph, rng.choice(proto.graph.node)
    weight = rng.choice(graph.initializer)
    match rng.randrange(7):
        case 0:
            node.op_type = rng.choice(OPERATORS)
            del node.attribute[:]
        case 1:
            node.input.append(weight.name)
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3:
            weight.CopyFrom(onnx.helper.make_tensor(weight.name, 7, [2], rng.choices(EXTREMES, k=2)))
        case 4:
            node.attribute.append(onnx.helper.make_attribute("axis", rng.choice(EXTREMES)))
        case 5:
            graph.input[0].type.tensor_type.shape.dim[rng.randrange(4)].dim_value = rng.choice(EXTREMES)
        case 6:
            for attribute in node.attribute:
                attribute.i = rng.choice(EXTREMES)
                if attribute.ints:
                    attribute.ints[0] = rng.choice(EXTREMES)


@pytest.mark.parametrize("seed", range(8))
def test_wired_but_wrong(folder, seed):
    rng = random.Random(seed)
    for _ in range(50):
        proto = onnx.ModelProto.FromString(GOOD)
        proto.opset_import[0].version = rng.choice((9, 11, 13, 17, 21, 25))
        for _ in range(rng.randint(1, 4)):
            mutate(proto, rng)
        load_bytes(proto.SerializeToString(), folder)


@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(content=st.binary(max_size=200))
def test_any_bytes(folder, content):
    assert not load_bytes(content, folder)
