# SPDX-License-Identifier: Apache-2.0
"""What a library leaves of a region becomes drafts over rows, on the buffers of the region's other steps."""

import numpy as np

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Rows
from quantrt.tactics.cuda.memory_bound.rows_drafts import by_channel, rows_drafts
from quantrt.tactics.cuda.tactic import TensorFacts, Workload, dense_strides

H200 = gpu_named("h200")
SHAPE = (2, 3, 4, 5)
SUM = Expression((Operand("tensor"), Operand("constant", "b")), (Instruction("add", (0, 1)),), (2,), (False,))


def drafts(expression: Expression, dtype: str = "float16", **arrays: np.ndarray):
    facts = TensorFacts(dtype, SHAPE, dense_strides(SHAPE))
    whole = Workload("region", Rows(expression), (facts,), ("float16",))
    names = {"in0": "stored"}
    constants = by_channel(arrays, 2)
    return rows_drafts(
        whole, expression, (facts,), outputs=("float16",), names=names, device=H200, constants=constants
    )


def test_they_read_what_was_stored_and_write_what_the_region_stores():
    (draft,) = drafts(SUM, b=np.arange(3, dtype=np.float32), unread=np.zeros(7, np.float32))
    assert (draft.inputs, draft.outputs) == (("stored",), ("out0",))
    (constant,) = draft.constants
    assert constant.make().ravel().tolist() == [0, 1, 2]


def test_what_no_kernel_computes_has_a_reason():
    reason = drafts(SUM, "complex64", b=np.zeros(3, np.float32))
    assert isinstance(reason, str)
    assert reason.startswith("no kernel for the rest of its epilogue: operands of complex64")


def test_constants_lie_along_the_channels():
    found = by_channel({"one": np.ones((1, 1)), "many": np.arange(6)}, 2)
    assert {name: array.shape for name, array in found.items()} == {"one": (), "many": (6, 1, 1)}
