# SPDX-License-Identifier: Apache-2.0
"""Look inside an OpenVINO model: its tensors by their ONNX names, and some of them as outputs."""

from __future__ import annotations

from collections.abc import Sequence

from quantrt.plan.openvino.held import hold_openvino, read_openvino
from quantrt.plan.plan import LibraryModel

__all__ = ["tap_openvino", "tensors_of_openvino"]

_NOT_COMPUTED = ("Parameter", "Constant", "Result")


def tensors_of_openvino(model: LibraryModel) -> dict[str, str]:
    """Every named tensor that a node makes -> that node's type, in execution order.

    OpenVINO's importer keeps the ONNX name of every tensor that its own operators still make.
    """
    return {
        name: node.get_type_name()
        for node in read_openvino(model).get_ordered_ops()
        if node.get_type_name() not in _NOT_COMPUTED
        for port in node.outputs()
        for name in sorted(port.names)
    }


def tap_openvino(model: LibraryModel, names: Sequence[str]) -> LibraryModel:
    """The same model with `names` as outputs besides its own; the library fuses less around them."""
    graph = read_openvino(model)
    present = {name for port in graph.outputs for name in port.names}
    graph.add_outputs([name for name in names if name not in present])
    return hold_openvino(graph)
