# SPDX-License-Identifier: Apache-2.0
"""A small denoiser as ONNX text: what a diffusion UNet is made of, once each. Nodes have no telling names."""

from quantrt.model.model import Model
from tests.nets import net, weights

UNET = """net (float[N,4,4,4] sample, float[N,8] time, float[N,5,6] text) => (float[N,4,4,4] y) {
  conv_in = Conv<pads=[1,1,1,1]>(sample, w_in)
  time1 = Gemm(time, w_t1, b_t1) ts = Sigmoid(time1) tm = Mul(time1, ts) time2 = Gemm(tm, w_t2)
  time3 = Gemm(time2, w_t3) spread = Unsqueeze(time3, last_two)
  conv1 = Conv<pads=[1,1,1,1]>(conv_in, w_c1) timed = Add(conv1, spread) bent = Relu(timed)
  conv2 = Conv<pads=[1,1,1,1]>(bent, w_c2) shortcut = Conv(conv_in, w_short) image = Add(shortcut, conv2)
  flat = Reshape(image, as_tokens) tokens = Transpose<perm=[0,2,1]>(flat)
  proj_in = MatMul(tokens, w_pi) n1 = LayerNormalization(proj_in, ones, zeros)
  q1 = MatMul(n1, w_q1) k1 = MatMul(n1, w_k1) v1 = MatMul(n1, w_v1)
  kt1 = Transpose<perm=[0,2,1]>(k1) qk1 = MatMul(q1, kt1) qs1 = Mul(qk1, scale) p1 = Softmax<axis=-1>(qs1)
  pv1 = MatMul(p1, v1) out1 = MatMul(pv1, w_o1) r1 = Add(out1, proj_in)
  n2 = LayerNormalization(r1, ones, zeros)
  q2 = MatMul(n2, w_q2) k2 = MatMul(text, w_k2) v2 = MatMul(text, w_v2)
  kt2 = Transpose<perm=[0,2,1]>(k2) qk2 = MatMul(q2, kt2) qs2 = Mul(qk2, scale) p2 = Softmax<axis=-1>(qs2)
  pv2 = MatMul(p2, v2) out2 = MatMul(pv2, w_o2) r2 = Add(out2, r1)
  n3 = LayerNormalization(r2, ones, zeros)
  up = MatMul(n3, w_up) ub = Add(up, b_up) value, gate = Split<axis=-1>(ub, halves)
  ge = Erf(gate) go = Add(ge, one) gm = Mul(go, gate) gated = Mul(gm, value)
  down = MatMul(gated, w_down) r3 = Add(down, r2)
  proj_out = MatMul(r3, w_po) po = Add(proj_out, zeros) pt = Transpose<perm=[0,2,1]>(po)
  back = Reshape(pt, as_image) whole = Add(back, image)
  y = Conv<pads=[1,1,1,1]>(whole, w_out)
}"""

SHAPES = {
    "w_in": (8, 4, 3, 3),
    "w_t1": (8, 32),
    "b_t1": (32,),
    "w_t2": (32, 32),
    "w_t3": (32, 8),
    "w_c1": (8, 8, 3, 3),
    "w_c2": (8, 8, 3, 3),
    "w_short": (8, 8, 1, 1),
    "w_k2": (6, 8),
    "w_v2": (6, 8),
    "w_up": (8, 64),
    "b_up": (64,),
    "w_down": (32, 8),
    "w_out": (4, 8, 3, 3),
    **dict.fromkeys(("w_pi", "w_q1", "w_k1", "w_v1", "w_o1", "w_q2", "w_o2", "w_po"), (8, 8)),
}

CONSTANTS = """
  int64[2] last_two = {2, 3}, int64[3] as_tokens = {0, 8, 16}, int64[4] as_image = {0, 8, 4, 4},
  int64[2] halves = {32, 32}, float scale = {0.35}, float one = {1.0},
  float[8] ones = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] zeros = {0, 0, 0, 0, 0, 0, 0, 0}"""


def unet() -> Model:
    """Inputs sample [N, 4, 4, 4], time [N, 8], text [N, 5, 6]; output y like sample."""
    head, body = UNET.split("{", 1)
    return net(f"{head} <{CONSTANTS}> {{{body}", weights(SHAPES))
