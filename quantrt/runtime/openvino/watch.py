# SPDX-License-Identifier: Apache-2.0
"""An OpenVINO model of which every layer is timed: slower than the executor that serves."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import openvino

from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.openvino.executor import CompiledVariant, OpenVinoExecutor
from quantrt.runtime.openvino.guarded import GuardedOpenVino
from quantrt.runtime.openvino.ports import Shapes
from quantrt.runtime.unique_names import unique_names

__all__ = ["WatchedOpenVino", "constant_names", "layer_type", "layers_of", "stable_names", "text_of"]

_CONSTANT = "Const"

_NUMBERED = re.compile(r"([A-Z][A-Za-z]*)_\d+")
"""Names of operators that transformations make without naming them: a type and a running number."""

_PORTS = ("Input", "Output")
"""Layer types of the model's own inputs and outputs."""


COUNTERS = {"PERF_COUNT": True}


class WatchedOpenVino(GuardedOpenVino):
    """The model with performance counters on.

    Args:
        beside: an open executor of the same model, where there is one: what it has compiled is not compiled
            again to be watched.
    """

    def __init__(
        self,
        model: LibraryModel,
        options: ExecOptions,
        *,
        output_names: Sequence[str] | None = None,
        beside: OpenVinoExecutor | None = None,
    ) -> None:
        self._beside = beside
        super().__init__(model, options, output_names=output_names, properties=COUNTERS)

    def input_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> Shapes | None:
        """The shapes of the library's inputs in its order; None where one is not given and is free."""
        found = {
            self._input_index[name]: shape for name, shape in shapes.items() if name in self._input_index
        }
        for index, spec in enumerate(self.inputs):
            sizes = spec.shape or ()
            if spec.shape is not None and all(isinstance(size, int) for size in sizes):
                found.setdefault(index, tuple(int(size) for size in sizes if isinstance(size, int)))
        if len(found) != len(self.inputs):
            return None
        return tuple(found[index] for index in range(len(self.inputs)))

    def runtime_model(self, shapes: Shapes | None) -> openvino.Model:
        """What the plugin runs, layer by layer: for these shapes, or for any when None.

        Raises:
            DataError: the model cannot have these shapes.
        """
        if shapes is None:
            least = (
                (size if isinstance(size, int) else 1 for size in spec.shape or ()) for spec in self.inputs
            )
            return self._compile(None, tuple(map(tuple, least))).compiled.get_runtime_model()
        own = self._variant(shapes).compiled.get_runtime_model()
        # A kernel of what was imported does not tell all that it joins.
        return own if self._beside is None else self._beside.runtime_model(shapes)

    def _read(self, model: LibraryModel) -> openvino.Model:
        return super()._read(model) if self._beside is None else self._beside.source_model()

    def _compile(self, shapes: Shapes | None, arrived: Shapes) -> CompiledVariant:
        if shapes is not None and self._beside is not None:
            variant = self._beside.again(shapes, COUNTERS)
            if variant is not None and self._has_layers_of(self._beside, variant, shapes):
                return variant
            self._beside = None
        return super()._compile(shapes, arrived)

    def _has_layers_of(self, beside: OpenVinoExecutor, variant: CompiledVariant, shapes: Shapes) -> bool:
        models = (beside.runtime_model(shapes), variant.compiled.get_runtime_model())
        one, other = ([name for name, _ in layers_of(model, self.source_model())] for model in models)
        return one == other

    def watch(
        self, inputs: Mapping[str, np.ndarray], *, runs: int, warmup_runs: int
    ) -> tuple[tuple[str, ...], list[float], list[float]]:
        """Names of the layers, milliseconds of each in a mean run, and of every whole run.

        The counters are means over all runs of a compiled model in whole microseconds, from which single
        runs cannot be told: those of the warm-up are taken out again. Once for each executor.
        """
        arrays = self._in_order(inputs)
        compiled = self._variant(tuple(array.shape for array in arrays)).compiled
        layers = list(layers_of(compiled.get_runtime_model(), self.source_model()))
        names = unique_names([node.get_friendly_name() for _, node in layers])
        request = compiled.create_infer_request()
        for _ in range(warmup_runs):
            self._infer(request, arrays)
        before = _means_of(request, names) if warmup_runs else [0.0] * len(names)
        run_ms = []
        for _ in range(runs):
            begin = time.perf_counter()
            self._infer(request, arrays)
            run_ms.append((time.perf_counter() - begin) * 1e3)
        count = warmup_runs + runs
        means = zip(_means_of(request, names), before, strict=True)
        times = [max(0.0, (count * after - warmup_runs * first) / runs) for after, first in means]
        return tuple(name for name, _ in layers), times, run_ms


def layers_of(model: openvino.Model, source: openvino.Model) -> Iterator[tuple[str, Any]]:
    """(unique name, node) of everything in a runtime model that computes, in the order in which it runs.

    Names are the same whenever the source is compiled: of operators that OpenVINO made and numbered
    ("FakeQuantize_63344") the number, which counts on in a process, is left out.
    """
    fixed = constant_names(model)
    nodes = [
        node
        for node in model.get_ordered_ops()
        if node.get_name() not in fixed and layer_type(node) not in _PORTS
    ]
    nodes.sort(key=lambda node: int(text_of(node, "execOrder") or 0))
    stable = stable_names([node.get_friendly_name() for node in nodes], source)
    yield from zip(unique_names(stable), nodes, strict=True)


def constant_names(model: openvino.Model) -> frozenset[str]:
    """Unique names of the nodes of a runtime model, but for outputs, that are the same in every run."""
    found: set[str] = set()
    for node in model.get_ordered_ops():
        makers = [port.get_source_output().get_node().get_name() for port in node.inputs()]
        kind = layer_type(node)
        if kind == _CONSTANT or (makers and kind != "Output" and all(name in found for name in makers)):
            found.add(node.get_name())
    return frozenset(found)


def stable_names(names: Sequence[str], source: openvino.Model) -> list[str]:
    """The names without the numbers of operators that the source does not have."""
    known = {node.get_friendly_name() for node in source.get_ordered_ops()}
    numbered = {
        name: found[1] for name in names if name not in known and (found := _NUMBERED.fullmatch(name))
    }
    longest_first = sorted(numbered, key=len, reverse=True)

    def without(name: str) -> str:
        for one in longest_first:
            name = name.replace(one, numbered[one])
        return name

    return [name if name in known else without(name) for name in names]


def layer_type(node: Any) -> str:
    """The plugin's own type of a layer: "Convolution", "Reorder", "Subgraph", ..."""
    return text_of(node, "layerType")


def text_of(node: Any, key: str) -> str:
    """What the plugin tells of a layer of its runtime model; empty where it tells nothing."""
    facts = node.get_rt_info()
    return str(facts[key].value) if key in facts else ""


def _means_of(request: openvino.InferRequest, names: Sequence[str]) -> list[float]:
    """Milliseconds of each layer, the mean over all runs so far."""
    rows = [info for info in request.get_profiling_info() if info.node_type != _CONSTANT]
    keys = unique_names([info.node_name for info in rows])
    times = {key: info.real_time.total_seconds() * 1e3 for key, info in zip(keys, rows, strict=True)}
    return [times.get(name, 0.0) for name in names]
