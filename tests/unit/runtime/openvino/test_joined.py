# SPDX-License-Identifier: Apache-2.0
"""Chains of small int8 products, which OpenVINO computes wrongly in kernels of its own making."""

import numpy as np
import openvino
import pytest

from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from quantrt.runtime.openvino.joined import HAS_CODES, joins_products
from tests.nets import net, quantized, run_ort, samples, weights

CHAIN = """net (float[N,16] x) => (float[N,6] y) {
  m0 = MatMul(x, w0)
  s0 = Add(m0, b0)
  r0 = Relu(s0)
  y = MatMul(r0, w1)
}"""
SHAPES = {"w0": (16, 24), "b0": (24,), "w1": (24, 6)}
X = samples(64, 16)


def chain(text: str = CHAIN):
    return quantized(net(text, weights(SHAPES)), OPENVINO, {"x": X}, method="minmax")


def source(text: str) -> openvino.Model:
    lowered = lower_to_openvino(write(chain(text)))
    return openvino.Core().read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("step", ["Relu(s0)", "Clip(s0, low, high)", "Identity(s0)", "Sigmoid(s0)"])
def test_a_chain_of_products_is_right_at_every_batch(threads: int, step: str):
    text = CHAIN.replace("  r0 = Relu(s0)", f"low = Constant<value = float {{0}}>()\n  r0 = {step}")
    text = text.replace("low =", "high = Constant<value = float {6}>()\n  low =") if "Clip" in step else text
    graph = write(chain(text))
    lowered = lower_to_openvino(graph)
    for rows in (*range(1, 10), 16):
        executor = OpenVinoExecutor(lowered, ExecOptions(threads=threads))
        x = X[:rows]
        (want,) = run_ort(graph, {"x": x})
        found = executor.run({"x": x})["y"]
        executor.close()
        # A code of the hidden tensor may round the other way: a step is 1/127 of its range, seen through w1.
        assert np.abs(found - want).max() <= 0.02 * np.abs(want).max(), rows


def test_the_mark_of_codes_is_in_the_ir_of_those_alone():
    assert HAS_CODES in lower_to_openvino(write(chain())).graph
    assert HAS_CODES not in lower_to_openvino(net(CHAIN, weights(SHAPES)).graph).graph


def test_which_models_are_joined():
    assert joins_products(source(CHAIN))
    assert joins_products(source(CHAIN.replace("Relu(s0)", "Identity(s0)")))
    assert not joins_products(source(CHAIN.replace("Relu(s0)", "Tanh(s0)"))), "its codes are made of floats"
    floats = lower_to_openvino(net(CHAIN, weights(SHAPES)).graph)
    model = openvino.Core().read_model(floats.graph.decode(), openvino.Tensor(floats.weights["bin"]))
    assert not joins_products(model)
    deep = CHAIN.replace("[N,16] x", "[N,2,16] x").replace("[N,6] y", "[N,2,6] y")
    lowered = lower_to_openvino(
        write(quantized(net(deep, weights(SHAPES)), OPENVINO, {"x": samples(32, 2, 16)}, method="minmax"))
    )
    model = openvino.Core().read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    assert not joins_products(model), "only matrices of two dimensions are"
