# SPDX-License-Identifier: Apache-2.0
"""The float graph and the fake-quantized graph behind two subjects."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import ModelError, UsageError
from quantrt.ir.clone import clone
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.openvino.taps import tensors_of_openvino
from quantrt.plan.plan import LibraryModel, Plan
from quantrt.plan.program import QUANTIZATION
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.explicit.operators import spell_integer_operators
from quantrt.quantize.explicit.picks import spell_picked_codes
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.qdq.write import write
from quantrt.quantize.record import from_record
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.report.layer_errors.equalized import unscaled_twin
from quantrt.report.layer_errors.from_openvino import from_openvino_engine
from quantrt.report.layer_errors.rows import multiply_rows
from quantrt.report.subject import Subject

CODE_TARGETS = {target.precision: target for target in (CUDA, CUDA_FP8)}
"""The rules by which engines for a GPU were quantized, by precision."""

__all__ = [
    "check_built_from",
    "fake_graph_of",
    "float_model_of",
    "has_float_and_quantized",
    "library_graph",
    "onnx_graph_of",
    "openvino_graph",
]


def has_float_and_quantized(reference: Subject, subject: Subject) -> bool:
    """Whether the subject is a quantized form of a float ONNX model."""
    is_float = reference.kind == "onnx" and not is_quantized(onnx_graph_of(reference).graph)
    if not is_float or subject.kind == "engine":
        return is_float and subject.precision in CODE_PRECISIONS
    return is_quantized(onnx_graph_of(subject).graph)


def float_model_of(reference: Subject, subject: Subject) -> Model:
    """The reference as the subject was made of it.

    Raises:
        UsageError: the subject is an engine of another model.
    """
    model = load_model(reference.path)
    if subject.plan is None:
        return model
    check_built_from(subject.plan, subject.name, model)
    return for_gpu(model) if subject.plan.model.library == "cuda" else model


def check_built_from(plan: Plan, name: str, model: Model) -> None:
    """Fail unless an engine was built from this model.

    Args:
        name: of the engine.

    Raises:
        UsageError: it was not.
    """
    if plan.fingerprint != model.fingerprint:
        part = "weights" if plan.fingerprint.graph == model.fingerprint.graph else "structure"
        raise UsageError(
            f"cannot compare the layers of '{name}': it was not built from '{model.path}'",
            got=f"{part} of another model",
            hint="`quantrt compare MODEL.onnx ENGINE.qrt --data P --layers` with its own ONNX file",
        )


def fake_graph_of(model: Model, subject: Subject) -> ir.Model:
    """The subject's quantization as QuantizeLinear and DequantizeLinear.

    Raises:
        ModelError: the engine does not tell how it was quantized.
    """
    plan = subject.plan
    if plan is None:
        graph = clone(load_model(subject.path).graph)
        spell_integer_operators(graph)
        return graph
    if plan.model.library == "onnxruntime":
        graph = multiply_rows(library_graph(plan.model), model.graph)
        spell_picked_codes(graph)
        return graph
    if plan.model.library == "openvino":
        return openvino_graph(model, plan.model)
    return write(from_record(model, _record(plan, subject), CODE_TARGETS[plan.precision]))


def openvino_graph(model: Model, engine: LibraryModel) -> ir.Model:
    """An int8 engine of OpenVINO as QuantizeLinear and DequantizeLinear around its float model.

    Raises:
        ModelError: what the engine's graph shows is not of this model.
    """
    return write(from_openvino_engine(unscaled_twin(model, tensors_of_openvino(engine)), engine))


def onnx_graph_of(subject: Subject) -> ir.Model:
    """The graph of an ONNX file, or of an engine of ONNX Runtime, with its weights."""
    return library_graph(subject.model)


def _record(plan: Plan, subject: Subject) -> dict[str, object]:
    record = program_from_model(plan.model).notes.get(QUANTIZATION)
    if not isinstance(record, dict):
        raise ModelError(
            f"'{subject.name}' does not say how it was quantized",
            hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
        )
    return record


def library_graph(model: LibraryModel) -> ir.Model:
    """The graph of a model of library "onnxruntime", with its weights."""
    graph: ir.Model = ir.serde.deserialize_model(onnx.ModelProto.FromString(model.graph))
    for name, value in graph.graph.initializers.items():
        if name in model.weights:
            value.const_value = ir.Tensor(model.weights[name], name=name)
    return graph
