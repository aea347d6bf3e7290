# SPDX-License-Identifier: Apache-2.0
"""Every operator that has to run does so in a program of the CUDA engine: none is unbuildable.

One of ONNX's cases for each, as the model of an engine: loaded, cut into regions and computed by the
references of these, on a CPU.
"""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import onnx
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from onnx.backend.test.runner import Runner

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.for_gpu import NARROW, for_gpu
from quantrt.model.load import make_model
from quantrt.operators.conformance.cases import Case, load_cases
from quantrt.operators.conformance.scope import REQUIRED
from quantrt.operators.conformance.skips import why_skipped
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.conformance.own_types import in_own_types

FLOAT32 = 1e-5  # norms and attention are spelled out, and rounded after every step
OLDEST_OPSET = 7  # of older files, ONNX's converter leaves some operators inputs that no longer fit


def is_model(case: Case) -> bool:
    """Whether the case can be a model of an engine: its inputs and outputs are tensors of whole bytes."""
    values = [
        np.asarray(value) for side in case.data_sets[0] for value in side if not isinstance(value, list)
    ]
    count = sum(len(side) for side in case.data_sets[0])
    return len(values) == count and not any(str(value.dtype) in (*NARROW, "object") for value in values)


def cases() -> Iterator[tuple[str, Case]]:
    """For each operator the case with the fewest others."""
    kept = [case for case in load_cases() if case.opset >= OLDEST_OPSET and why_skipped(case) is None]
    kept = [case for case in kept if case.data_sets and is_model(case)]
    for name in REQUIRED:
        mine = [case for case in kept if name in case.operators]
        if mine:
            yield name, min(mine, key=lambda case: len(case.operators))


CASES = dict(cases())


def test_every_required_operator_is_in_a_model():
    assert set(CASES) == set(REQUIRED)


@pytest.mark.parametrize("operator", CASES)
def test_an_engine_computes_what_onnx_says(operator: str):
    case = CASES[operator]
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    name_nodes(proto.graph)
    model = for_gpu(make_model(ir.from_proto(proto)))
    inputs, outputs = case.data_sets[0]
    names = (value.name for value in model.graph.graph.inputs)
    arrays = in_own_types(map(np.asarray, inputs), model.graph.graph.inputs)
    feeds = dict(zip(names, arrays, strict=True))
    config = CudaConfig(builder_optimization_level=0)
    with closing(CudaLowering(model, config, feeds, gpu=gpu_named("H200"), device="cpu")) as lowering:
        program = lowering.reference(None, "fp32")
    with closing(CudaExecutor(program, *specs_of(program), device="cpu")) as executor:
        found = executor.run(feeds)
    got = [found[value.name] for value in model.graph.graph.outputs]
    want = in_own_types(outputs, model.graph.graph.outputs)
    Runner.assert_similar_outputs(want, got, rtol=max(case.rtol, FLOAT32), atol=max(case.atol, FLOAT32))
