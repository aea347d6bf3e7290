# SPDX-License-Identifier: Apache-2.0
"""Turn an ONNX graph into the form one library loads, with its weights beside it."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.errors import DeviceError, last_line
from quantrt.ir.clone import clone
from quantrt.ir.pick_codes import pick_codes
from quantrt.ir.scratch import scratch_folder
from quantrt.ir.split import split_weights
from quantrt.model.file.save import save_model
from quantrt.plan.onnxruntime.gates import join_gates
from quantrt.plan.onnxruntime.gelus import join_gelus
from quantrt.plan.onnxruntime.moved_weights import moved_weights
from quantrt.plan.onnxruntime.rows import convolve_rows
from quantrt.plan.onnxruntime.stored_weights import spell_stored_weights
from quantrt.plan.openvino.codes import respell_codes
from quantrt.plan.openvino.heads import split_heads
from quantrt.plan.openvino.held import hold_openvino
from quantrt.plan.openvino.norms import part_norms
from quantrt.plan.openvino.pixels import multiply_pixels
from quantrt.plan.openvino.rows import list_rows
from quantrt.plan.openvino.shapes import fold_shapes
from quantrt.plan.openvino.tokens import turn_last
from quantrt.plan.plan import LibraryModel

__all__ = ["lower_to_onnxruntime", "lower_to_openvino", "spell_for_onnxruntime"]


def lower_to_onnxruntime(graph: ir.Model) -> LibraryModel:
    """The graph as ONNX Runtime loads it: protobuf and external weights, no copy of what it leaves alone."""
    spelled = spell_for_onnxruntime(graph)
    for edit in (convolve_rows, join_gates, join_gelus):
        edit(spelled)
    proto, weights = split_weights(spelled, inside=moved_weights(spelled))
    return LibraryModel("onnxruntime", proto, weights)


def spell_for_onnxruntime(graph: ir.Model) -> ir.Model:
    """A copy of the graph with codes that no kernel reads made floats once, or where picked."""
    spelled = clone(pick_codes(graph))
    spell_stored_weights(spelled)
    return spelled


def lower_to_openvino(graph: ir.Model, float_precision: str = "fp32") -> LibraryModel:
    """The graph as an OpenVINO IR, its weights as stored in the graph (int8 stays int8).

    Args:
        float_precision: "fp32" or "bf16", what layers outside int8 compute in.

    Raises:
        DeviceError: OpenVINO cannot import the model; carries its message.
    """
    import openvino as ov  # heavy: only where an OpenVINO engine is made

    with scratch_folder() as folder:
        source = folder / "model.onnx"
        # Weights in a file of their own are mapped; out of the graph's they are copied, and once more.
        save_model(_spell_for_openvino(graph, float_precision), source, max_file_bytes=0)
        try:
            model = ov.Core().read_model(source)
        except RuntimeError as error:
            raise DeviceError(f"OpenVINO cannot import this model: {last_line(error)}") from error
        fold_shapes(model)
        return hold_openvino(model)


def _spell_for_openvino(graph: ir.Model, float_precision: str) -> ir.Model:
    """A copy of the graph in the forms that its kernels are fast and right for."""
    spelled = clone(graph)
    respell_codes(spelled)
    spelled = pick_codes(spelled)
    for edit in (split_heads, multiply_pixels, turn_last, list_rows):
        edit(spelled)
    if float_precision != "bf16":
        part_norms(spelled)
    return spelled
