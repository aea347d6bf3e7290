# SPDX-License-Identifier: Apache-2.0
"""The cases: ONNX's backend tests as the installed package carries them, and ours where it has none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from quantrt.operators.conformance.more_cases import MORE_CASES
from quantrt.operators.conformance.scope import EXPANDED
from quantrt.operators.table import OPERATORS

__all__ = ["KNOWN", "Case", "load_cases"]

KNOWN = frozenset({*(row.op_type for row in OPERATORS), *EXPANDED})
"""Operators that run."""
_KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


@dataclass(frozen=True)
class Case:
    """One model with inputs and the outputs to expect.

    Attributes:
        kind: ONNX's name of the collection, or "more".
        data_sets: pairs of inputs and outputs, in the order of the graph; numpy arrays or lists of them.
        rtol, atol: as ONNX's own runner compares.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        versions = [e.version for e in self.model.opset_import if e.domain in ("", "ai.onnx")]
        return int(max(versions))

    @cached_property
    def operators(self) -> frozenset[str]:
        """Operator types, those of other domains with the domain before them."""
        return frozenset(
            f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            for node in _nodes(self.model.graph)
        )


def load_cases() -> tuple[Case, ...]:
    """Every case with an operator that runs; `skips.why_skipped` says which of them are left out."""
    return tuple(case for case in (*_onnx_cases(), *_more_cases()) if case.operators & KNOWN)


def _onnx_cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of ONNX's own computations
        found = [test for kind in _KINDS for test in load_model_tests(kind=kind)]
    for test in found:
        if test.model is not None:
            data_sets = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets or ()]
            yield Case(test.name, test.kind, test.model, data_sets, test.rtol, test.atol)
        elif test.model_dir is not None:
            folder = Path(test.model_dir)
            model = onnx.load(folder / "model.onnx")
            yield Case(test.name, test.kind, model, _read_data_sets(folder), test.rtol, test.atol)


def _more_cases() -> Iterator[Case]:
    for more in MORE_CASES:
        yield Case(more.name, "more", more.model(), [more.data_set()], more.rtol, more.atol)


def _read_data_sets(folder: Path) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    return [
        (_read_tensors(data_set, "input"), _read_tensors(data_set, "output"))
        for data_set in sorted(folder.glob("test_data_set_*"))
    ]


def _read_tensors(folder: Path, kind: str) -> list[np.ndarray]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [onnx.numpy_helper.to_array(_tensor(folder / f"{kind}_{n}.pb")) for n in range(count)]


def _tensor(path: Path) -> onnx.TensorProto:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [
        onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for value in values
    ]


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
