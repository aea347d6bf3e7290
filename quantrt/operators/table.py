# SPDX-License-Identifier: Apache-2.0
"""OPERATORS: every operator of the default ONNX domain that runs in torch, and its function at an opset."""

from __future__ import annotations

from quantrt.errors import ModelError, close_match
from quantrt.operators.elementwise import activation, arithmetic, bitwise, cast, comparison, quantize, unary
from quantrt.operators.images import col2im, conv, pool, resize, sampling
from quantrt.operators.operator import Operator
from quantrt.operators.products import attention, integer, matmul, recurrent, signal
from quantrt.operators.reductions import distinct, norm, reduce, selection, softmax
from quantrt.operators.structure import constants, control_flow, indexing, sequences, shape, slice_join

__all__ = ["LAST_OPSET", "OPERATORS", "find_operator"]

LAST_OPSET = 28
"""The newest opset that the rows were held against; a newer one may change what an operator means."""

OPERATORS: tuple[Operator, ...] = (
    *arithmetic.OPERATORS,
    *unary.OPERATORS,
    *comparison.OPERATORS,
    *bitwise.OPERATORS,
    *activation.OPERATORS,
    *softmax.OPERATORS,
    *reduce.OPERATORS,
    *matmul.OPERATORS,
    *conv.OPERATORS,
    *col2im.OPERATORS,
    *pool.OPERATORS,
    *norm.OPERATORS,
    *attention.OPERATORS,
    *recurrent.OPERATORS,
    *quantize.OPERATORS,
    *integer.OPERATORS,
    *cast.OPERATORS,
    *shape.OPERATORS,
    *slice_join.OPERATORS,
    *indexing.OPERATORS,
    *selection.OPERATORS,
    *distinct.OPERATORS,
    *resize.OPERATORS,
    *sampling.OPERATORS,
    *signal.OPERATORS,
    *constants.OPERATORS,
    *control_flow.OPERATORS,
    *sequences.OPERATORS,
)


def find_operator(op_type: str, opset: int, *, node: str) -> Operator:
    """The row for an operator at an opset: that with the newest `since` not after it.

    Args:
        node: the node's name, for the message.

    Raises:
        ModelError: no row; names the versions there are, or the operator most alike.
    """
    rows = [row for row in OPERATORS if row.op_type == op_type]
    fitting = [row for row in rows if row.since <= opset and (row.until is None or opset <= row.until)]
    if fitting and opset <= LAST_OPSET:
        return max(fitting, key=lambda row: row.since)
    message = f"no torch implementation for node '{node}': operator {op_type} of opset {opset}"
    if rows:
        first = min(row.since for row in rows)
        raise ModelError(
            message,
            got=f"opset {opset}",
            expected=f"{op_type} in opset {first} to {LAST_OPSET}",
            hint=f"converting the model to opset {min(max(opset, first), LAST_OPSET)}",
        )
    near = close_match(op_type, {row.op_type for row in OPERATORS})
    raise ModelError(message, hint=f"'{near}', if that was meant" if near else None)
