"""Small workloads for the tests of this folder."""

import numpy as np

from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Gemm, Rows
from quantrt.tactics.cuda.tactic import TensorFacts, Workload


def facts(dtype: str, *shape: int) -> TensorFacts:
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return TensorFacts(dtype, shape, strides)


def scaled_rows(region: str = "scale", *, scale: float = 2.0, rows: int = 7) -> Workload:
    """y = x * scale, float32 [rows, 41]."""
    operands = (Operand("tensor", "x", ("mul", 0)), Operand("scalar", value=scale))
    expression = Expression(operands, (Instruction("mul", (0, 1)),), (2,), (False,))
    return Workload(region, Rows(expression), (facts("float32", rows, 41),), ("float32",))


def int8_gemm(region: str = "gemm", *, M: int = 7, K: int = 41, N: int = 33) -> Workload:
    """codes = quantize(x @ w * scale[n], 0.5), int8 [M, N]."""
    rng = np.random.default_rng(3)
    operands = (Operand("accumulator"), Operand("constant", "scale"), Operand("scalar", value=0.5))
    instructions = (Instruction("mul", (0, 1)), Instruction("quantize", (3, 2)))
    epilogue = Expression(operands, instructions, (4,), (False,))
    weight = rng.integers(-127, 128, (K, N), dtype=np.int8)
    scale = rng.uniform(1e-3, 2e-3, N).astype(np.float32)
    formula = Gemm(("node", 0), ("node", 1), "w", False, epilogue)
    return Workload(region, formula, (facts("int8", M, K),), ("int8",), weight, {"scale": scale})
