# SPDX-License-Identifier: Apache-2.0
"""y = relu(q) (relu(k)^T v) / (relu(q) sum(relu(k)) + EPSILON), a program for every head of every image.

q is [B, H, S, D], k [B, H, T, D], v [B, H, T, E] and y [B, H, S, E], each with strides of its own. All that
is added up is float32, and so are the factors of both products, in three parts each for the tensor cores: the
first product is as large as T tokens make it.
"""

# mypy: ignore-errors
import triton
import triton.language as tl


# Strides of each tensor along [B, H, S or T, D or E].
# fmt: off
@triton.jit
def linear_attention(
    q_ptr, k_ptr, v_ptr, y_ptr,
    H, S, T,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_yb, stride_yh, stride_ys, stride_yd,
    D: tl.constexpr,
    E: tl.constexpr,
    EPSILON: tl.constexpr,
    IS_DENSE: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    # fmt: on
    image = (tl.program_id(0) // H).to(tl.int64)
    head = (tl.program_id(0) % H).to(tl.int64)
    offs_s = tl.arange(0, BLOCK_S)
    offs_d = tl.arange(0, BLOCK_D)
    offs_e = tl.arange(0, BLOCK_E)
    if IS_DENSE:
        cols_q = offs_d
        cols_k = offs_d
        cols_v = offs_e
        cols_y = offs_e
    else:
        cols_q = offs_d * stride_qd
        cols_k = offs_d * stride_kd
        cols_v = offs_e * stride_vd
        cols_y = offs_e * stride_yd
    q_ptrs = q_ptr + image * stride_qb + head * stride_qh + cols_q[None, :]
    k_ptrs = k_ptr + image * stride_kb + head * stride_kh + cols_k[None, :]
    v_ptrs = v_ptr + image * stride_vb + head * stride_vh + cols_v[None, :]
    y_ptrs = y_ptr + image * stride_yb + head * stride_yh + cols_y[None, :]

    products = tl.zeros((BLOCK_D, BLOCK_E), tl.float32)
    sums = tl.zeros((BLOCK_D,), tl.float32)
    first = 0
    # `while`, for the interpreter makes no range of an argument.
    while first < T:
        tokens = (first + offs_s)[:, None]
        k = tl.load(k_ptrs + tokens * stride_ks, mask=(tokens < T) & (offs_d < D)[None, :], other=0.0)
        v = tl.load(v_ptrs + tokens * stride_vs, mask=(tokens < T) & (offs_e < E)[None, :], other=0.0)
        k = tl.maximum(k.to(tl.float32), 0.0, propagate_nan=tl.PropagateNan.ALL)
        products = tl.dot(tl.trans(k), v.to(tl.float32), products, input_precision="tf32x3")
        sums += tl.sum(k, 0)
        first += BLOCK_S

    first = 0
    while first < S:
        tokens = (first + offs_s)[:, None]
        q = tl.load(q_ptrs + tokens * stride_qs, mask=(tokens < S) & (offs_d < D)[None, :], other=0.0)
        q = tl.maximum(q.to(tl.float32), 0.0, propagate_nan=tl.PropagateNan.ALL)
        divisor = tl.sum(q * sums[None, :], 1) + EPSILON
        y = tl.dot(q, products, input_precision="tf32x3") / divisor[:, None]
        tl.store(y_ptrs + tokens * stride_ys, y, mask=(tokens < S) & (offs_e < E)[None, :])
        first += BLOCK_S
