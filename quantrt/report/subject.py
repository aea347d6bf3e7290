# SPDX-License-Identifier: Apache-2.0
"""A file that can be run: an ONNX model as it is on disk, or an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import onnx

from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.file.read import read_model
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.openvino.taps import tap_openvino, tensors_of_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel, Plan
from quantrt.plan.program import type_of_codes
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.runtime.engine import load
from quantrt.runtime.executor import Executor, open_executor

__all__ = ["Subject", "own_rows", "open_subject"]


class _Runnable(Protocol):
    """What an engine and an executor share."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""

    def close(self) -> None:
        """Free it."""


class Subject:
    """An opened file.

    Attributes:
        path: of the file.
        kind: "onnx" or "engine".
        precision: of an engine; "float" or "Q/DQ" for an ONNX file.
        model, options: what the library runs, and how.
        inputs: what `run` takes.
        notes: what a user should know, one sentence each.
        plan: of an engine; None for an ONNX file.
    """

    def __init__(
        self,
        path: Path,
        runnable: _Runnable,
        model: LibraryModel,
        options: ExecOptions,
        inputs: tuple[TensorSpec, ...],
        *,
        executor: Executor,
        kind: str,
        precision: str,
        notes: tuple[str, ...] = (),
        plan: Plan | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.precision = precision
        self.model = model
        self.options = options
        self.inputs = inputs
        self.notes = notes
        self.plan = plan
        self._runnable = runnable
        self._executor = executor

    @property
    def name(self) -> str:
        """The file as it was given."""
        return str(self.path)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        return self._runnable.run(inputs)

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """One run for timing, of inputs that are on the device already; see Executor.prepare."""
        return self._executor.prepare(inputs)

    def tensors(self) -> dict[str, str]:
        """Every named tensor that a node of the main graph makes -> that node's operator, in order.

        Of an engine for a GPU, the buffers that its steps make -> the step's runner; codes are named like
        `quantrt.plan.program.codes_of` says.
        """
        if self.model.library == "openvino":
            return tensors_of_openvino(self.model)
        if self.model.library == "cuda":
            steps = program_from_model(self.model).steps
            return {name: step.runner for step in steps if not step.is_host for name in step.outputs if name}
        return {name: node.op_type for node in self._proto().graph.node for name in node.output if name}

    def tap(self, names: Sequence[str], model: LibraryModel | None = None) -> Executor:
        """The same model with `names` as its outputs; the library fuses less around them than without.

        Args:
            model: of ONNX Runtime, in place of the own one.
        """
        if self.model.library == "openvino":
            return open_executor(tap_openvino(self.model, names), self.options, output_names=names)
        if self.model.library == "cuda":
            program = program_from_model(self.model)
            outputs = tuple((name, name, _tapped_type(name)) for name in names)
            tapped = program_to_model(replace(program, outputs=outputs))
            return open_executor(tapped, self.options, output_names=names)
        given = model or self.model
        proto = onnx.ModelProto.FromString(given.graph)
        present = {value.name: value for value in proto.graph.output}
        del proto.graph.output[:]
        proto.graph.output.extend(present.get(name, onnx.ValueInfoProto(name=name)) for name in names)
        return open_executor(replace(given, graph=proto.SerializeToString()), self.options)

    def _proto(self) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.ParseFromString(self.model.graph)
        return proto

    def close(self) -> None:
        """Free the library's model."""
        self._runnable.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _tapped_type(buffer: str) -> str:
    """The element type in which a buffer of a program is handed out."""
    return type_of_codes(buffer) or "float32"


def own_rows(outputs: Mapping[str, np.ndarray], batch: Batch, dataset: Dataset) -> dict[str, np.ndarray]:
    """The outputs without the rows that only pad a batch to the size the model insists on."""
    return {name: dataset.layout.own_rows(array, batch.count) for name, array in outputs.items()}


def open_subject(path: Path, *, threads: int | None = None) -> Subject:
    """Open an .onnx file in ONNX Runtime, unchanged, or an engine in its own library.

    Args:
        threads: for an .onnx file; an engine keeps its own.

    Raises:
        UsageError: the suffix is neither .onnx nor .qrt.
        ModelError: the file is missing or damaged.
    """
    if path.suffix == ".onnx":
        graph = read_model(path).graph
        model = lower_to_onnxruntime(graph)
        options = ExecOptions(threads=threads)
        executor = open_executor(model, options)
        unranked = {value.name for value in graph.graph.inputs if value.shape is None}
        inputs = (
            replace(spec, shape=None) if spec.name in unranked else spec  # to ONNX Runtime such are scalars
            for spec in executor.inputs
        )
        is_quantized = any(node.op_type == "DequantizeLinear" for node in graph.graph)
        precision = "Q/DQ" if is_quantized else "float"
        return Subject(
            path,
            executor,
            model,
            options,
            tuple(inputs),
            executor=executor,
            kind="onnx",
            precision=precision,
        )
    if path.suffix == ".qrt":
        engine = load(path)
        return Subject(
            path,
            engine,
            engine.plan.model,
            engine.plan.options,
            engine.inputs,
            executor=engine.executor,
            kind="engine",
            precision=engine.precision,
            notes=tuple(engine.notes),
            plan=engine.plan,
        )
    raise UsageError(f"cannot run '{path}'", got=f"suffix '{path.suffix}'", expected=".onnx or .qrt")
