# SPDX-License-Identifier: Apache-2.0
"""A model with its weights alone in 4 bits by our kernels in Triton's interpreter."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from quantrt.config import CudaConfig, QuantizeConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.weight_only import quantize_weights
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, run_ort, weights

OWN = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("torch", "cudnn", "cublaslt"))
IDS = {"ids": np.arange(2 * 5).reshape(2, 5) * 97 % 1000}
LAYER = """layer (int64[N,S] ids) => (float[N,S,96] y) {
  e = Gather(table, ids)
  h = MatMul(e, w1)  hb = Add(h, b1)  r = Relu(hb)
  o = MatMul(r, w2)  ob = Add(o, b2)  y = Add(ob, e)
}"""
SHAPES = {"table": (1000, 96), "w1": (96, 168), "w2": (168, 96), "b1": (168,), "b2": (96,)}
"""Neither 96 nor 168 are multiples of the group of 64."""

INT4 = QuantizeConfig(weights="int4", weight_rounding="nearest")


@pytest.fixture(scope="module")
def layer() -> Model:
    return net(LAYER, weights(SHAPES))


def assert_right(model: Model, want: np.ndarray, *, tables: int) -> None:
    """Its engine in fp16 multiplies codes, and holds them and those of tables."""
    lowering = CudaLowering(model, OWN, IDS, gpu=gpu_named("h200"), device="cpu")
    program = program_from_model(lowering.lower(None, "fp16")[0])
    runners = [step.runner for step in program.steps if step.runner.startswith("gemm")]
    assert runners == ["gemm_w4a16", "gemm_w4a16"]
    assert [weight.group_size for weight in program.coded.values()] == [64] * tables
    own, reference = (run(model, steps, IDS) for steps in (program, lowering.reference(None, "fp16")))
    lowering.close()
    assert sqnr_db(reference, own) > 65  # halves between the products: 2**-11 of each value
    assert sqnr_db(want, own) > 60


def run(model: Model, program: Program, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    try:
        return executor.run(inputs)["y"]
    finally:
        executor.close()


def test_codes_of_our_own_rounding(layer: Model):
    given = for_gpu(layer)
    graph = quantize_weights(given, [], INT4, target="cuda").graph
    (want,) = run_ort(quantize_weights(layer, [], INT4, target="ort").graph, IDS)
    assert_right(replace(given, graph=graph), want, tables=1)


def test_codes_of_a_file(layer: Model):
    """MatMulNBits and GatherBlockQuantized, as ONNX Runtime runs them."""
    graph = quantize_weights(layer, [], INT4, target="ort").graph
    (want,) = run_ort(graph, IDS)
    assert_right(for_gpu(make_model(graph)), want, tables=1)
