# SPDX-License-Identifier: Apache-2.0
"""Times of regions from made-up profiles of a chain: stem -> relu -> a -> b -> norm -> head."""

import pytest

from quantrt.assign.tables.cost_model import (
    CostModel,
    Crossing,
    TimedEngine,
    TimedLayer,
    cost_model,
)
from quantrt.assign.tables.region import Region, Surroundings
from tests.nets import net, weights

CHAIN = """chain (float[N,4] x) => (float[N,4] y) {
  s = MatMul(x, w0)
  r = Sigmoid(s)
  a = MatMul(r, w1)
  b = MatMul(a, w2)
  n = Sigmoid(b)
  y = MatMul(n, w3)
}"""


@pytest.fixture
def around() -> Surroundings:
    return Surroundings(chain().graph.graph, REGIONS)


def chain():
    return net(CHAIN, weights({f"w{index}": (4, 4) for index in range(4)}))


NODES = [node.name or "" for node in chain().graph.graph]
PRODUCTS = [node.name or "" for node in chain().graph.graph if node.op_type == "MatMul"]
REGIONS = tuple(Region(name, (name,), ("MatMul",)) for name in PRODUCTS)
STEM, A, B, HEAD = PRODUCTS
FIRST_SIGMOID, SECOND_SIGMOID = (name for name in NODES if name not in PRODUCTS)


def float_engine() -> TimedEngine:
    layers = [
        TimedLayer((STEM,), 1.0),
        TimedLayer((FIRST_SIGMOID,), 0.5, ((0, 100, "float32"),)),
        TimedLayer((A,), 1.0, ((1, 100, "float32"),)),
        TimedLayer((B,), 1.0, ((2, 100, "float32"),)),
        TimedLayer((SECOND_SIGMOID,), 0.5, ((3, 100, "float32"),)),
        TimedLayer((HEAD,), 1.0, ((4, 100, "float32"),)),
    ]
    return TimedEngine(layers, 10.0)


def int8_engine() -> TimedEngine:
    layers = [
        TimedLayer((), 0.1),  # a conversion of the model's input
        TimedLayer((STEM,), 0.3, ((0, 5000, "uint8"),)),
        TimedLayer((FIRST_SIGMOID,), 0.5, ((1, 5000, "float32"),)),
        TimedLayer((A,), 0.2, ((2, 5000, "float32"),)),
        TimedLayer((B,), 0.2, ((3, 5000, "int8"),)),
        TimedLayer((SECOND_SIGMOID,), 0.5, ((4, 5000, "float32"),)),
        TimedLayer((HEAD,), 0.2, ((5, 5000, "float32"),)),
    ]
    return TimedEngine(layers, 4.0)


def test_sums_are_what_the_whole_engines_take(around):
    model = cost_model(REGIONS, around, {"fp32": float_engine(), "int8": int8_engine()})
    for precision, total in (("fp32", 10.0), ("int8", 4.0)):
        assert model.predict_ms(dict.fromkeys(PRODUCTS, precision)) == pytest.approx(total)


def test_what_stands_before_a_region_counts_with_it(around):
    times = cost_model(REGIONS, around, {"fp32": float_engine(), "int8": int8_engine()}).times_ms
    assert times[A] == pytest.approx({"fp32": 3.0, "int8": 1.4})
    assert times[STEM] == pytest.approx({"fp32": 2.0, "int8": 0.8})  # with the conversion before it
    assert times[HEAD]["int8"] == pytest.approx(1.4)


def test_only_codes_that_pass_from_region_to_region_are_crossings(around):
    model = cost_model(REGIONS, around, {"fp32": float_engine(), "int8": int8_engine()})
    assert model.crossings == (Crossing(A, B, 5000),)
    assert model.ns_per_element == pytest.approx(0.5e6 * 2 / 5000)
    (boundary,) = model.boundaries(PRODUCTS)
    assert (boundary.first, boundary.second) == (1, 2)
    assert boundary.costs == pytest.approx({("fp32", "int8"): 1.0, ("int8", "fp32"): 1.0})


def test_a_measured_engine_corrects_the_rate_of_conversions():
    model = CostModel(
        {"a": {"fp32": 2.0, "int8": 1.0}, "b": {"fp32": 2.0, "int8": 1.0}}, (Crossing("a", "b", 10**6),), 0.5
    )
    mixed = {"a": "int8", "b": "fp32"}
    assert model.predict_ms(mixed) == pytest.approx(3.5)
    fitted = model.fitted([(mixed, 3.2)])
    assert fitted.ns_per_element == pytest.approx(0.2)
    assert fitted.predict_ms(mixed) == pytest.approx(3.2)
    assert model.fitted([(mixed, 2.0)]).ns_per_element == 0.0
    whole = dict.fromkeys("ab", "int8")
    assert model.fitted([(whole, 2.5)]).ns_per_element == 0.5  # says nothing of conversions
    between = model.fitted([(whole, 2.5), (mixed, 3.2), (mixed, 3.4)])
    assert between.ns_per_element == pytest.approx(0.3)


def test_no_measured_engine_makes_conversions_slower_than_they_can_be():
    times = {"a": {"fp16": 2.0, "int8": 1.0}, "b": {"fp16": 2.0, "int8": 1.0}}
    model = CostModel(times, (Crossing("a", "b", 10**6),), 0.001, most_ns_per_element=0.004)
    mixed = {"a": "int8", "b": "fp16"}
    assert model.fitted([(mixed, 3.6)]).ns_per_element == 0.004
    assert model.fitted([(mixed, 3.002)]).ns_per_element == pytest.approx(0.002)
    assert model.fitted([(mixed, 2.0)]).ns_per_element == 0.0


def gpu_engines() -> dict[str, TimedEngine]:
    """Kernels timed alone: 10 ms in floats that take 10 together; 4 in floats and 5 in codes that take 8."""
    floats = [TimedLayer((name,), 2.5) for name in PRODUCTS]
    codes = [TimedLayer((name,), 1.25, in_codes=True) for name in PRODUCTS]
    glue = TimedLayer((SECOND_SIGMOID,), 4.0)
    return {"fp32": TimedEngine(floats, 10.0), "int8": TimedEngine([*codes[:3], glue, codes[3]], 8.0)}


def test_layers_in_codes_are_faster_in_an_engine_than_those_in_floats(around):
    """In it they find more in L2: (8 - 4) / 5 = 0.8 of what they take alone, as far as two engines tell."""
    model = cost_model(REGIONS, around, gpu_engines())
    for precision, total in (("fp32", 10.0), ("int8", 8.0)):
        assert model.predict_ms(dict.fromkeys(PRODUCTS, precision)) == pytest.approx(total)
    in_codes = model.codes_ms[HEAD]
    assert in_codes == {"fp32": 0.0, "int8": pytest.approx(0.8 * 1.25, rel=0.02)}
    assert model.times_ms[HEAD]["int8"] - in_codes["int8"] == pytest.approx(4.0, rel=0.02)  # its glue
    assert model.codes_ms[STEM] == pytest.approx(in_codes)
    assert model.times_ms[STEM]["int8"] == pytest.approx(in_codes["int8"])


def test_layers_of_a_cpu_have_no_factors(around):
    assert not cost_model(REGIONS, around, {"fp32": float_engine(), "int8": int8_engine()}).codes_ms


def test_a_mixed_engine_that_took_longer_makes_layers_slower():
    times = {"a": {"fp16": 2.0, "int8": 1.0}, "b": {"fp16": 2.0, "int8": 1.0}}
    codes = {"a": {"fp16": 0.0, "int8": 1.0}, "b": {"fp16": 0.0, "int8": 1.0}}
    model = CostModel(times, (Crossing("a", "b", 10**6),), 0.0, most_ns_per_element=0.3, codes_ms=codes)
    mixed = {"a": "int8", "b": "fp16"}
    fitted = model.fitted([(mixed, 3.6)])  # 3.0 by layers, 0.3 by conversions at most: all are 1.1x as slow
    assert fitted.ns_per_element == 0.3
    assert fitted.predict_ms(mixed) == pytest.approx(3.6)
    assert fitted.times_ms["a"] == pytest.approx({"fp16": 2.2, "int8": 1.1})
    assert fitted.fitted([(mixed, 3.6)]) == fitted  # from what layers took at first
    assert fitted.fitted([(dict.fromkeys("ab", "fp16"), 4.0)]).times_ms["b"] == pytest.approx(times["b"])


def test_codes_are_slower_where_only_engines_with_them_were():
    times = {"a": {"fp16": 2.0, "int8": 1.0}}
    model = CostModel(times, (), 0.0, codes_ms={"a": {"fp16": 0.0, "int8": 1.0}})
    fitted = model.fitted([({"a": "fp16"}, 2.0), ({"a": "int8"}, 1.25)])
    assert fitted.times_ms["a"]["fp16"] == pytest.approx(2.0, rel=0.01)
    assert fitted.times_ms["a"]["int8"] == pytest.approx(1.25, rel=0.01)
