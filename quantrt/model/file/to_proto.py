# SPDX-License-Identifier: Apache-2.0
"""A graph of onnx_ir that somebody hands over -> protobuf, its weights with it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from quantrt.errors import ModelError

__all__ = ["to_proto"]


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as a protobuf that refers to no files; `model` stays as it is.

    Raises:
        ModelError: a file that a weight lies in is missing or too short; the graph cannot be written.
    """
    try:
        return ir.to_proto(ir.external_data.load_to_model(model.clone()))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause = error.__cause__ or error
        raise ModelError(
            "cannot take this onnx_ir.Model",
            got=str(cause).splitlines()[0] if str(cause) else type(cause).__name__,
            expected="a graph with its weights, loaded or in files where it was read",
            hint="`onnx_ir.save(model, 'model.onnx')`, and that path",
        ) from error
