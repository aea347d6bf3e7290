# SPDX-License-Identifier: Apache-2.0
"""The step of a product that one of our kernels computes with its whole epilogue."""

from __future__ import annotations

from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.kernel import KernelSpec
from quantrt.tactics.cuda.products.product import Product
from quantrt.tactics.cuda.tactic import Constant, Draft

__all__ = ["gemm_draft"]


def gemm_draft(
    runner: str,
    product: Product,
    problem: GemmProblem,
    weights: tuple[Constant, ...],
    kernels: tuple[KernelSpec, ...],
) -> Draft:
    """A draft for a runner that reads `weights`, then the constant operands of the epilogue."""
    operands = [operand for operand in problem.epilogue.operands if operand.kind != "accumulator"]
    return Draft(
        runner=runner,
        inputs=tuple(f"in{i}" for i in range(1 + len(problem.tensors))),
        outputs=tuple(f"out{i}" for i in range(len(problem.outputs))),
        options={
            "kinds": [operand.kind for operand in operands],
            "scalars": [operand.value for operand in operands if operand.kind == "scalar"],
            "outputs": list(problem.outputs),
            **({"per_row": list(problem.per_row)} if problem.per_row else {}),
        },
        constants=(
            *weights,
            *(product.channel_constant(x.name, "float32") for x in operands if x.kind == "constant"),
        ),
        kernels=kernels,
    )
