# SPDX-License-Identifier: Apache-2.0
"""Which steps of a transformer copy what a view would do: none between its products and its attention."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.quantize.targets.cuda import CUDA
from quantrt.runtime.cuda.steps.steps import FreshMemory, OpenProgram, open_program, run_steps
from quantrt.runtime.cuda.tensors import tensor_on
from quantrt.tactics.cuda.lower import CudaLowering
from tests.exported_attention import EXPORTERS, path_of
from tests.nets import net, quantized, samples, weights

B, S = 3, 6
CPU = torch.device("cpu")

BERT = """bert (float[B,S,32] x, float[B,1,1,S] mask) => (float[B,S,32] y) {
  heads = Constant<value_ints=[0, 0, 4, 8]>()
  flat = Constant<value_ints=[0, 0, 32]>()
  root = Constant<value_float=2.8284271>()
  qm = MatMul(x, wq)  qa = Add(qm, bq)  qr = Reshape(qa, heads)  q = Transpose<perm=[0,2,1,3]>(qr)
  km = MatMul(x, wk)  ka = Add(km, bk)  kr = Reshape(ka, heads)  k = Transpose<perm=[0,2,3,1]>(kr)
  vm = MatMul(x, wv)  va = Add(vm, bv)  vr = Reshape(va, heads)  v = Transpose<perm=[0,2,1,3]>(vr)
  s0 = MatMul(q, k)   s1 = Div(s0, root)  s2 = Add(s1, mask)  p = Softmax<axis=-1>(s2)
  c0 = MatMul(p, v)   c1 = Transpose<perm=[0,2,1,3]>(c0)  c2 = Reshape(c1, flat)
  o0 = MatMul(c2, wo) o1 = Add(o0, bo)  o2 = Add(o1, x)
  y = LayerNormalization<axis=-1>(o2, g, b)
}"""

VIT = """vit (float[B,S,32] x) => (float[B,S,32] y) {
  heads = Constant<value_ints=[0, 0, 3, 4, 8]>()
  flat = Constant<value_ints=[0, 0, 32]>()
  zero = Constant<value_int=0>()  one = Constant<value_int=1>()  two = Constant<value_int=2>()
  scale = Constant<value_float=0.35355338>()
  n = LayerNormalization<axis=-1>(x, g, b)
  m = MatMul(n, wqkv)  a = Add(m, bqkv)  r = Reshape(a, heads)  t = Transpose<perm=[2,0,3,1,4]>(r)
  q0 = Gather<axis=0>(t, zero)  k0 = Gather<axis=0>(t, one)  v = Gather<axis=0>(t, two)
  q = Mul(q0, scale)  k = Transpose<perm=[0,1,3,2]>(k0)
  s0 = MatMul(q, k)  p = Softmax<axis=-1>(s0)
  c0 = MatMul(p, v)  c1 = Transpose<perm=[0,2,1,3]>(c0)  c2 = Reshape(c1, flat)
  o0 = MatMul(c2, wo)  o1 = Add(o0, bo)  y = Add(o1, x)
}"""

SHAPES = dict.fromkeys(("wq", "wk", "wv", "wo"), (32, 32))
SHAPES |= dict.fromkeys(("bq", "bk", "bv", "bo", "g", "b"), (32,))
SHAPES |= {"wqkv": (32, 96), "bqkv": (96,)}


class _Watched:
    """Memory that notes which views lie elsewhere than what they view."""

    def __init__(self, opened: OpenProgram) -> None:
        self._opened = opened
        self._fresh = FreshMemory(CPU)
        self.copies: list[str] = []

    def allocate_for(self, number: int) -> Any:
        return self._fresh.allocate_for(number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        step = self._opened.steps[number].step
        if step.runner == "view":
            owner = inputs[0].untyped_storage().data_ptr()
            self.copies += [
                f"{step.region} of {tuple(inputs[0].shape)} {inputs[0].stride()}"
                for x in outputs
                if x.untyped_storage().data_ptr() != owner
            ]


def copies_of(program: Program, inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Views that copied, in one pass by the reference, which lays attention out as fused kernels do."""
    opened = open_program(program, CPU)
    memory = _Watched(opened)
    with torch.no_grad():
        run_steps(opened, {name: tensor_on(inputs[name]) for name, _ in program.inputs}, memory)
    assert any(step.step.runner == "view" for step in opened.steps)
    return memory.copies


def text_model(text: str) -> Model:
    used = {name: shape for name, shape in SHAPES.items() if f", {name})" in text or f", {name}," in text}
    return net(text, weights(used), opset=17)


def exported(exporter: str) -> Callable[[], Model]:
    return lambda: load_model(path_of(exporter, "encoder"))


MODELS: Mapping[str, Callable[[], Model]] = {
    "bert": lambda: text_model(BERT),
    "vit": lambda: text_model(VIT),
    **{f"torch's encoder, {exporter}": exported(exporter) for exporter in EXPORTERS},
}


def feeds_of(model: Model) -> dict[str, np.ndarray]:
    sizes = {"B": B, "S": S}
    shapes = {spec.name: [sizes.get(dim, dim) for dim in spec.shape] for spec in model.inputs}
    return {name: samples(*shape, seed=number) for number, (name, shape) in enumerate(shapes.items())}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_copied_between_products_and_attention(name: str, precision: str):
    model = for_gpu(MODELS[name]())
    feeds = feeds_of(model)
    codes = quantized(model, CUDA, feeds) if precision == "int8" else None
    lowering = CudaLowering(model, CudaConfig(), feeds, gpu=gpu_named("h200"), device="cpu")
    program = lowering.reference(codes, "fp32")
    assert copies_of(program, feeds) == []


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_trained_vit(shared_data: Callable[[str], Path], precision: str):
    model = for_gpu(load_model(shared_data("models/cifar10_vit_tiny_d9.onnx")))
    feeds = {model.inputs[0].name: samples(2, 3, 32, 32)}
    codes = quantized(model, CUDA, feeds) if precision == "int8" else None
    lowering = CudaLowering(model, CudaConfig(), feeds, gpu=gpu_named("h200"), device="cpu")
    assert copies_of(lowering.reference(codes, "fp32"), feeds) == []
