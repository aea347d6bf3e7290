# SPDX-License-Identifier: Apache-2.0
"""Embedding tables as codes: where, why not, and what that does to their rows."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.assign.tables.region import find_regions
from quantrt.assign.tables.sensitivity import Sensitivity
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.explicit.read import read
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.patterns.tables import SHOWN_TABLE
from quantrt.quantize.placement.placement import place
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values, quantize
from quantrt.quantize.quantized_model import Decision, QuantizedModel
from quantrt.quantize.scales.qparams import quantize_weight
from quantrt.quantize.target import Target
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.executor import open_executor
from tests.nets import net, run_ort

ROWS, COLUMNS = 8192, 128
MINMAX = CalibrationConfig(method="minmax")
EMBEDDED = "net (int64[B,S] ids) => (float[B,S,128] y) { e = Gather(table, ids) y = Add(e, one) }"


def table(rng: np.random.Generator, rows: int = ROWS) -> np.ndarray:
    """Like a trained one: the rows of frequent words reach far beyond the rest in a few columns."""
    array = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    array[:16, :3] *= 30
    return array


def embedding(rng: np.random.Generator, text: str = EMBEDDED, rows: int = ROWS) -> Model:
    return net(text, {"table": table(rng, rows), "one": np.ones(COLUMNS, np.float32)})


def decision_of(model: Model, **options: object) -> Decision:
    placement = place(model.graph, CUDA, **options)
    return next(row for row in placement.decisions if row.op_type == "Gather")


def numbers(rng: np.random.Generator, high: int = ROWS) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(0, high, (4, 50))}


def in_codes(model: Model, target: Target = CUDA, **options: bool) -> QuantizedModel:
    """Nothing is to be observed: a table has its own range."""
    return quantize(
        model, Stats({}, 0, "", model.fingerprint), target, QuantizeConfig(**options), CalibrationConfig()
    )


def test_a_large_table_is_placed_and_says_so(rng: np.random.Generator):
    model = embedding(rng)
    placement = place(model.graph, CUDA)
    node = decision_of(model).node
    assert dict(placement.weights) == {(node, 0): 0}
    assert decision_of(model) == Decision(
        node, "Gather", True, "8-bit table: rows are dequantized where they are read"
    )


@pytest.mark.parametrize("target", [ORT, OPENVINO], ids=lambda target: target.name)
def test_the_libraries_of_a_cpu_have_small_ones_in_codes_too(target, rng: np.random.Generator):
    for rows, is_shown in ((SHOWN_TABLE // COLUMNS, True), (SHOWN_TABLE // COLUMNS - 1, False)):
        graph = embedding(rng, rows=rows).graph
        assert bool(place(graph, target).weights) is is_shown
        assert not place(graph, CUDA).weights


def test_tables_have_all_codes_where_products_have_half_of_them(rng: np.random.Generator):
    """What saturates on a CPU without VNNI is a sum of products, and a table is in none."""
    codes = in_codes(embedding(rng), replace(ORT, weight_qmax=63))
    (tensor,) = codes.weights.values()
    assert tensor.codes.max() == 127


def test_tensorrt_picks_no_rows_of_codes(rng: np.random.Generator):
    placement = place(embedding(rng).graph, TENSORRT)
    assert not placement.weights
    assert placement.decisions[0].reason == "Gather has no 8-bit form for tensorrt"


CASES = {
    "too small": (EMBEDDED, {"rows": 100}, "its table has 12800 elements"),
    "columns": (
        EMBEDDED.replace("Gather(", "Gather<axis=1>(").replace("y = Add(e, one)", "y = Identity(e)"),
        {},
        "it does not pick rows",
    ),
    "activation": (
        "net (int64[B,S] ids, float[N,128] x) => (float[B,S,128] y) { y = Gather(x, ids) }",
        {},
        "it picks from an activation",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stays_float_says_why(case: str, rng: np.random.Generator):
    text, options, reason = CASES[case]
    arrays = {"table": table(rng, options.get("rows", ROWS)), "one": np.ones(COLUMNS, np.float32)}
    used = {name: array for name, array in arrays.items() if f"{name}," in text or f"{name})" in text}
    decision = decision_of(net(text, used))
    assert not decision.is_int8
    assert decision.reason.startswith(reason)


def test_a_scale_for_every_row_takes_opset_13(rng: np.random.Generator):
    model = embedding(rng)
    model.graph.opset_imports[""] = 12  # as of a file that cannot be raised
    assert decision_of(model).reason == "opset 12 has no scale for every row"


def test_an_excluded_table_stays_float(rng: np.random.Generator):
    model = embedding(rng)
    assert decision_of(model, exclude_types=("Gather",)).reason == "excluded by type Gather"
    assert not place(model.graph, CUDA, exclude_types=("Gather",)).weights


def test_frequent_rows_keep_forty_decibels(rng: np.random.Generator):
    """One scale for a row alone is not enough where columns differ."""
    model, frequent = embedding(rng), numbers(rng, 16)
    codes = in_codes(model)
    (want,) = run_ort(model.graph, frequent)
    (got,) = run_ort(write(codes), frequent)
    assert sqnr_db(want - 1, got - 1) > 40
    (tensor,) = codes.weights.values()
    assert tensor.codes.dtype == np.int8
    assert tensor.qparams.scale.shape == (ROWS,)
    assert tensor.codes.min() >= -127
    plain = quantize_weight(table(np.random.default_rng(1)), axis=0).dequantize()
    assert sqnr_db(table(np.random.default_rng(1))[:16, 3:], plain[:16, 3:]) < 30


def test_balanced_tables_are_the_same_model(rng: np.random.Generator):
    array = table(rng)
    array[:, 5] = 0
    model = net(EMBEDDED, {"table": array, "one": np.ones(COLUMNS, np.float32)})
    node = decision_of(model).node
    balanced = balance_tables(model.graph, {(node, 0): 0})
    feeds = numbers(rng)
    (want,), (got,) = (run_ort(graph, feeds) for graph in (model.graph, balanced))
    assert sqnr_db(want, got) > 130
    assert {v.name for n in model.graph.graph for v in n.outputs} <= {
        v.name for n in balanced.graph for v in n.outputs
    }
    assert balance_tables(model.graph, {(node, 0): None}) is model.graph


READ = "net (int64[B,S] ids) => (float[B,S,16] y) { e = Gather(table, ids) y = MatMul(e, w) }"


def read_by_a_product(rng: np.random.Generator) -> Fitted:
    """The table and the product in codes for a GPU, and their float graph."""
    weights = {"table": table(rng), "w": rng.standard_normal((COLUMNS, 16)).astype(np.float32)}
    model = net(READ, weights)
    options = QuantizeConfig()
    stats = collect(
        model, observed_values(model, (CUDA,), options), open_dataset(numbers(rng), model.inputs), MINMAX
    )
    return Fitted(quantize(model, stats, CUDA, options, MINMAX), "minmax", {}, floats=model.graph)


@pytest.mark.parametrize("lower", [lower_to_onnxruntime, lower_to_openvino])
def test_engines_of_a_cpu_hold_codes_and_compute_what_the_graph_does(lower, rng: np.random.Generator):
    """The file has the codes, and rows are what the Q/DQ graph makes of them.

    OpenVINO multiplies by a column's factor and adds in one step, with one rounding instead of two.
    """
    model, feeds = embedding(rng), numbers(rng)
    graph = write(in_codes(model, OPENVINO))
    made = lower(graph)
    assert ROWS * COLUMNS < made.size_bytes < 1.2 * ROWS * COLUMNS
    executor = open_executor(made, ExecOptions(threads=1))
    (want,) = run_ort(graph, feeds)
    got = executor.run(feeds)["y"]
    executor.close()
    assert np.array_equal(got, want) if made.library == "onnxruntime" else sqnr_db(want, got) > 140


def test_a_table_in_codes_beside_a_float_product_keeps_its_factors(rng: np.random.Generator):
    fitted = read_by_a_product(rng)
    pick, product = fitted.model.placement.decisions
    assert (pick.is_int8, product.is_int8) == (True, True)
    mixed = keep_float(fitted, {product.node: "kept float"}, QuantizeConfig()).model
    assert set(mixed.weights) == {(pick.node, 0)}
    feeds = numbers(rng)
    (want,), (got,) = (run_ort(graph, feeds) for graph in (fitted.floats, write(mixed)))
    assert sqnr_db(want, got) > 35


def test_the_damage_of_a_table_is_what_its_codes_do(rng: np.random.Generator):
    fitted, feeds = read_by_a_product(rng), numbers(rng)
    pick, product = fitted.model.placement.decisions
    data = open_dataset(feeds, fitted.model.model.inputs)
    damages = Sensitivity(fitted, find_regions(fitted.model.placement), data, samples=4).measure({})
    for node, other in ((pick.node, product.node), (product.node, pick.node)):
        alone = keep_float(fitted, {other: "kept float"}, QuantizeConfig()).model
        (want,), (got,) = (run_ort(graph, feeds) for graph in (fitted.floats, write(alone)))
        assert 10 * np.log10(1 / damages[node]) == pytest.approx(sqnr_db(want, got), abs=0.05)


def test_a_table_without_scales_of_its_rows(rng: np.random.Generator):
    (tensor,) = in_codes(embedding(rng), per_channel=False).weights.values()
    assert tensor.qparams.axis is None


def test_tables_that_were_quantized_before_keep_their_codes(rng: np.random.Generator):
    source = write(in_codes(embedding(rng)))
    found = read(make_model(source))
    (tensor,) = found.weights.values()
    stored = source.graph.initializers[next(n for n in source.graph.initializers if n.endswith("_quantized"))]
    assert np.array_equal(tensor.codes, stored.const_value.numpy())
    assert [row.reason for row in found.placement.decisions if row.op_type == "Gather"] == [
        "rows of its table are dequantized where they are read"
    ]
    feeds = numbers(rng)
    (want,), (got,) = (run_ort(graph, feeds) for graph in (source, found.graph))
    assert sqnr_db(want, got) > 110
    assert isinstance(found.graph, ir.Model)


def test_weights_serve_again_on_other_ranges(rng: np.random.Generator):
    """What ranges do not enter is worked out once for all range methods."""
    model = embedding(rng)
    first = in_codes(model)
    config = QuantizeConfig()
    stats = Stats({}, 0, "", model.fingerprint)
    again = quantize(model, stats, CUDA, config, CalibrationConfig(method="entropy"), like=first)
    assert again.weights is first.weights
    assert again.graph is first.graph
    other = quantize(
        model, stats, CUDA, QuantizeConfig(exclude_types=("Gather",)), CalibrationConfig(), like=first
    )
    assert not other.weights
