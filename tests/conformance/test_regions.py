# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend tests, region by region: no graph fails for want of a pattern, no formula is wrong."""

from itertools import islice

import onnx
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="formulas are computed in torch")

from onnx.backend.test.runner import Runner

from quantrt.errors import ModelError
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.load import make_model
from quantrt.operators.conformance.cases import Case, load_cases
from quantrt.operators.conformance.skips import why_skipped
from quantrt.regions.partition import partition
from tests.conformance.own_types import BFLOAT16, in_own_types
from tests.unit.regions.check_partition import check_structure
from tests.unit.regions.evaluate_regions import FORMULAS, run_regions

OLDEST_OPSET = 7  # of older files, ONNX's converter leaves PRelu a slope that no longer fits
CASES = [case for case in load_cases() if why_skipped(case) is None and case.opset >= OLDEST_OPSET]
FLOAT32 = 1e-5  # norms and attention are spelled out, and rounded after every step
FLOAT16 = 2e-3
FEW = 500


def canonical(case: Case) -> ir.Model | None:
    """The graph as every later stage sees it; None where a model of its kind is refused on loading."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    name_nodes(proto.graph)
    try:
        return make_model(ir.from_proto(proto)).graph
    except ModelError:
        return None


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case):
    graph = canonical(case)
    if graph is None:
        pytest.skip("the model is refused on loading")
    regions = partition(graph)
    check_structure(graph, regions)
    if not any(isinstance(region.formula, FORMULAS) for region in regions.regions):
        return  # nodes and views are computed by the operators, whose tests these cases are
    tolerance = tolerance_of(case, graph)
    names = [value.name for value in graph.graph.inputs]
    for inputs, outputs in case.data_sets:
        feeds = in_own_types(inputs, graph.graph.inputs)
        found = run_regions(graph, regions, dict(zip(names, feeds, strict=True)))
        got = [found[value.name] for value in graph.graph.outputs]
        want = in_own_types(outputs, graph.graph.outputs)
        Runner.assert_similar_outputs(
            want, got, rtol=max(case.rtol, tolerance), atol=max(case.atol, tolerance)
        )


def tolerance_of(case: Case, graph: ir.Model) -> float:
    """By the type that outputs are rounded to: in the case, and here."""
    stored = {value.type.tensor_type.elem_type for value in case.model.graph.output}
    own = {value.dtype for value in graph.graph.outputs}
    if onnx.TensorProto.BFLOAT16 in stored and ir.DataType.BFLOAT16 not in own:
        return BFLOAT16  # one rounds, the other does not
    return FLOAT16 if own & {ir.DataType.FLOAT16, ir.DataType.BFLOAT16} else FLOAT32


@pytest.mark.slow
def test_most_operators_have_a_formula_somewhere():
    """So that what is computed above is more than a few cases."""
    smallest_first = sorted(CASES, key=lambda case: len(case.model.graph.node))
    has_formula = (
        any(isinstance(region.formula, FORMULAS) for region in partition(graph).regions)
        for graph in map(canonical, smallest_first)
        if graph is not None
    )
    assert sum(islice(filter(None, has_formula), FEW + 1)) > FEW  # the rest need not be looked at
