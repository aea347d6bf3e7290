# SPDX-License-Identifier: Apache-2.0
"""MatMul, Gemm and Einsum."""

from __future__ import annotations

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import restored, stored
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "det", "einsum", "gemm", "gemm_by_attribute", "matmul"]


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """numpy.matmul; integers wrap."""
    if a.is_floating_point():
        return torch.matmul(a, b)
    whole_a, whole_b = stored(a), stored(b)
    if a.device.type == "cpu":
        return restored(torch.matmul(whole_a, whole_b), a.dtype)
    # Other devices have no integer product: multiply and add, all products in memory at once.
    left = whole_a if a.dim() > 1 else whole_a.unsqueeze(0)
    right = whole_b if b.dim() > 1 else whole_b.unsqueeze(1)
    product = (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2, dtype=whole_a.dtype)
    product = product if b.dim() > 1 else product.squeeze(-1)
    product = product if a.dim() > 1 else product.squeeze(-1 if b.dim() == 1 else -2)
    return restored(product, a.dtype)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> torch.Tensor:
    """alpha * A @ B + beta * C of matrices, either one transposed first; C broadcasts."""
    product = matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        product = (product * alpha).to(a.dtype)
    if c is None:
        return product
    return product + (c if beta == 1 else (c * beta).to(a.dtype))


def gemm_by_attribute(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> torch.Tensor:
    """Opset 6: C broadcasts only where the attribute says so."""
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not broadcast and c.shape != y.shape:
        raise ModelError(
            "Gemm adds a C of another shape without `broadcast`",
            got=str(list(c.shape)),
            expected=str(list(y.shape)),
        )
    return y


def einsum(*tensors: torch.Tensor, equation: str) -> torch.Tensor:
    """The sum of products that the equation names."""
    return torch.einsum(equation, *tensors)


def det(x: torch.Tensor) -> torch.Tensor:
    """The determinant of each matrix [..., M, M]; of 16-bit floats in float32."""
    found: torch.Tensor = torch.linalg.det(x.to(torch.promote_types(x.dtype, torch.float32)))
    return found.to(x.dtype)


OPERATORS = (
    Operator("Det", 11, det),
    Operator("MatMul", 1, matmul),
    Operator("Gemm", 6, gemm_by_attribute, until=6),
    Operator("Gemm", 7, gemm),
    Operator("Einsum", 12, einsum),
)
