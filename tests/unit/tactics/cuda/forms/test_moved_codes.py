# SPDX-License-Identifier: Apache-2.0
"""Codes are moved on where what they are moved to is read on the same grid, and nowhere else."""

from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples, weights

HALVES = """net (float[N,8,8,8] x) => (float[N,8,8,8] y, float[N,4,8,8] z, float[N,4,8,8] u) {
    r = Relu(x) a, b = Split<axis=1>(r, sizes)
    y = Conv<pads=[1,1,1,1]>(r, w) z = Conv<pads=[1,1,1,1]>(a, v) u = Conv<pads=[1,1,1,1]>(b, v)
}"""
LEAST_DB = 30.0
"""Of one convolution in 8 bits; on the grid of another range it has less than 0."""


def test_halves_of_a_map_with_ranges_of_their_own():
    arrays = weights({"w": (8, 8, 3, 3), "v": (4, 4, 3, 3)})
    model = for_gpu(net(HALVES, {**arrays, "sizes": np.array([4, 4])}))
    x = samples(4, 8, 8, 8)
    x[:, :4] *= 0.1
    inputs = {"x": x}
    codes = quantized(model, CUDA, inputs)
    lowering = CudaLowering(model, CudaConfig(), inputs, gpu=gpu_named("H200"), device="cpu")
    with closing(lowering):
        program = lowering.reference(codes, "fp16")
    with closing(CudaExecutor(program, *specs_of(program), device="cpu")) as executor:
        got = executor.run(inputs)
    for name, want in zip("yzu", run_ort(model.graph, inputs), strict=True):
        assert sqnr_db(want, got[name]) > LEAST_DB, name
