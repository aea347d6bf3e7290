# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention in ONNX's text form, as EfficientViT is exported."""

import numpy as np

__all__ = ["CONSTANTS", "linear_nodes"]

CONSTANTS = {
    "pads": np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int64),
    "one": np.array(1.0, np.float32),
    "zero": np.array([0], np.int64),
    "last": np.array([-1], np.int64),
    "end": np.array([np.iinfo(np.int64).max], np.int64),
    "axis": np.array([3], np.int64),
    "step": np.array([1], np.int64),
    "epsilon": np.array(1e-5, np.float32),
}


def linear_nodes(x: str, y: str) -> str:
    """From q, k and v, of as many channels each, in `x` [N, heads, channels, tokens] to `y`."""
    return f"""
  t = Transpose<perm=[0,1,3,2]>({x})
  q0, k0, v = Split<axis=3, num_outputs=3>(t)
  q = Relu(q0)
  k = Relu(k0)
  kt = Transpose<perm=[0,1,3,2]>(k)
  v1 = Pad<mode="constant">(v, pads, one)
  kv = MatMul(kt, v1)
  both = MatMul(q, kv)
  top = Slice(both, zero, last, axis, step)
  bottom0 = Slice(both, last, end, axis, step)
  bottom = Add(bottom0, epsilon)
  {y} = Div(top, bottom)
"""
