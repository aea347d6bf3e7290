# SPDX-License-Identifier: Apache-2.0
"""The artefact of stage 1: a checked, canonical float graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.binding import Binding

__all__ = ["Fingerprint", "Model"]


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a model: structure and weights apart.

    A changed checkpoint of the same network changes `weights` only. Both are hexadecimal SHA-256
    of the model as given, before any canonicalization.
    """

    graph: str
    weights: str


@dataclass(frozen=True)
class Model:
    """A float ONNX model, ready for the stages after it.

    Attributes:
        graph: the canonical model; stages never edit it, they clone it. Weights of external files
            stay memory-mapped.
        path: where it came from; None for a model made in memory.
        inputs, outputs: what a caller passes and gets, initializers left out.
        fingerprint: identity of the model as given.
        changes: what canonicalization did, one line per pass that changed something, such as
            "folded 53 BatchNormalization into Conv".
        file_bytes: size of the file and its external data, or of what a file of a model in memory would have;
            0 for a graph made here.
        notes: what a user should know about the model, one line each, such as operators from outside the
            ONNX standard.
        absent: tensors of the file's main graph that the canonical one has no more -> the tensor that has the
            very same values; None where none has, as for what a BatchNormalization was folded into.
        bfloats: inputs and outputs that the file has in bfloat16; the graph, and whoever passes arrays, has
            float32.
        bindings: inputs and outputs that an engine takes or gives in another element type than the graph's
            -> that type; `inputs` and `outputs` tell it too.
        stored: values that an engine for a GPU has to store in a certain element type -> that type.
    """

    graph: ir.Model
    path: Path | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    fingerprint: Fingerprint
    changes: tuple[str, ...] = ()
    file_bytes: int = 0
    notes: tuple[str, ...] = ()
    absent: Mapping[str, str | None] = field(default_factory=dict, compare=False)
    bfloats: frozenset[str] = frozenset()
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    stored: Mapping[str, Binding] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """What messages call it: its path, quoted, or "this model"."""
        return "this model" if self.path is None else f"'{self.path}'"
