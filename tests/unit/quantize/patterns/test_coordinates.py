# SPDX-License-Identifier: Apache-2.0
import pytest

from quantrt.quantize.placement.placement import place
from quantrt.quantize.target import Target
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import int8_nodes, net, reason, weights

BODIES = {
    "MatMul": "y = MatMul(x, w)",
    "Gemm": "y = Gemm<transB=1>(x, w)",
}


def _placed(op_type: str, rows: int, target: Target):
    shape = (32, rows) if op_type == "Gemm" else (rows, 32)
    text = f"net (float[N,{rows}] x) => (float[N,32] y) {{ {BODIES[op_type]} }}"
    return place(net(text, weights({"w": shape})).graph, target)


@pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("op_type", BODIES)
def test_products_of_coordinates_stay_float(op_type: str, target: Target):
    placement = _placed(op_type, 4, target)
    assert not int8_nodes(placement)
    assert "4 numbers for each row" in reason(placement, f"{op_type}_0")
    assert int8_nodes(_placed(op_type, 5, target)) == {f"{op_type}_0"}
