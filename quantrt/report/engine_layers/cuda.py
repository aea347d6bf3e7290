# SPDX-License-Identifier: Apache-2.0
"""The regions of an engine for a GPU as layers, from its file alone: no GPU, torch or Triton is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS, precision_of
from quantrt.ir.collector import without_collector
from quantrt.plan.plan import Plan
from quantrt.plan.program import Program, Step, type_of_codes
from quantrt.plan.program_json import program_from_model
from quantrt.report.engine_layers.layer import CHANNELS_LAST, ROW_MAJOR, EngineLayer, Rival, TensorForm
from quantrt.report.engine_layers.nodes import PlanNodes
from quantrt.report.engine_layers.program import describe_program, node_tactics

__all__ = ["cuda_layers"]

_WHOLE_KINDS = {"joined": "Concat", "view": "View", "host": "Host", "nodes": "Nodes"}
"""Kinds of regions that have one way to run, by their runner."""

_MEASURED = ("timed", "cached")
"""Origins of times that were taken on the GPU."""


@without_collector()
def cuda_layers(plan: Plan) -> tuple[EngineLayer, ...]:
    """One layer per region, in the order in which they run.

    Sizes, bytes and operations are those at which regions were timed. Engines of earlier versions hold
    neither these nor rivals.

    Raises:
        ModelError: the content is not a program.
    """
    reader = _Reader(plan)
    return tuple(reader.layer(row) for row in reader.shown)


class _Reader:
    """A plan's program, indexed by region."""

    def __init__(self, plan: Plan) -> None:
        self.program = program_from_model(plan.model)
        self.shown = describe_program(plan.model, plan.options.float_precision)["regions"]
        self._rows: Mapping[str, Mapping[str, Any]] = self.program.notes.get("regions", {})
        self._rivals: Mapping[str, Sequence[Any]] = self.program.notes.get("candidates", {})
        self._nodes = PlanNodes.of(plan)
        self._phrases = node_tactics(plan.model)
        self._readers = _readers(self.program)
        self._steps: dict[str, list[Step]] = {}
        for step in self.program.steps:
            self._steps.setdefault(step.region, []).append(step)

    def layer(self, shown: Mapping[str, Any]) -> EngineLayer:
        """One region, of which `describe_program` tells `shown`."""
        name = shown["name"]
        row, steps = self._rows.get(name, {}), self._steps[name]
        nodes = self._nodes_of(shown, steps)
        kind = _WHOLE_KINDS.get(shown["formula"], shown["formula"])
        is_measured = shown["origin"] in _MEASURED
        inputs, outputs = (_forms(row.get(side, ())) for side in ("inputs", "outputs"))
        return EngineLayer(
            name=name,
            kind=kind,
            nodes=nodes,
            sources=self._nodes.sources(nodes),
            precision=self._precision(shown, inputs, outputs),
            computes_in=shown["computes_in"] or "",
            reason=self._reason(nodes, shown, steps),
            tactic=shown["tactic"],
            rivals=tuple(_rival(found) for found in self._rivals.get(row.get("key") or "", ())),
            median_us=shown["median_us"] if is_measured else None,
            bytes_moved=row.get("bytes"),
            operations=row.get("operations"),
            inputs=inputs,
            outputs=outputs,
            weights=self._weights(steps),
            attributes=dict(self._attributes(row, shown, steps)),
        )

    def _nodes_of(self, shown: Mapping[str, Any], steps: Sequence[Step]) -> tuple[str, ...]:
        names = shown["nodes"] or [node for step in steps for node in step.options.get("nodes", ())]
        return tuple(name for name in names if name in self._nodes.layers)

    def _precision(
        self, shown: Mapping[str, Any], inputs: Sequence[TensorForm], outputs: Sequence[TensorForm]
    ) -> str:
        """A layer without a weight is in the codes that all that it reads and makes are."""
        forms = [form.dtype for form in (*inputs[:1], *outputs)]
        if shown["precision"] is not None and len(set(forms)) == 1 and precision_of(forms[0]):
            return precision_of(forms[0])
        return shown["precision"] or ""

    def _reason(self, nodes: Sequence[str], shown: Mapping[str, Any], steps: Sequence[Step]) -> str:
        if not nodes:
            return self._conversion_reason(steps)
        reason = self._nodes.reason(nodes, "")
        for node in nodes:
            reason = reason.removesuffix(f"; {self._phrases.get(node, '')}")
        if shown["precision"] in CODE_PRECISIONS and shown["computes_in"] != shown["precision"]:
            how = f"computed in {shown['computes_in']}: no {shown['precision']} kernel was right or faster"
            return f"quantized in the graph, {how} ({reason})"
        return reason

    def _conversion_reason(self, steps: Sequence[Step]) -> str:
        """What a region that no node asked for is there for."""
        made = [buffer for step in steps for buffer in step.outputs]
        readers = list(dict.fromkeys(name for buffer in made for name in self._readers.get(buffer, ())))
        if not readers:
            return ""
        others = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
        codes = type_of_codes(made[0])
        what = f"{precision_of(codes)} codes" if codes else "another type or layout"
        return f"a conversion to {what} for '{readers[0]}'{others}"

    def _weights(self, steps: Sequence[Step]) -> dict[str, int]:
        found: dict[str, int] = {}
        for key in dict.fromkeys(key for step in steps for key in step.weights):
            first, *factors = self.program.held(key)
            types = [self.program.held_type(key), *(str(array.dtype) for array in factors)]
            for dtype, array in zip(types, (first, *factors), strict=True):
                found[dtype] = found.get(dtype, 0) + array.nbytes
        return found

    def _attributes(
        self, row: Mapping[str, Any], shown: Mapping[str, Any], steps: Sequence[Step]
    ) -> Iterator[tuple[str, Any]]:
        yield from row.get("attributes", {}).items()
        yield "runners", shown["runners"]
        if shown["origin"] is not None:
            yield "origin", shown["origin"]
        if shown["origin"] == "estimated" and shown["median_us"] is not None:
            yield "estimated_us", shown["median_us"]
        if "beside_us" in row:
            yield "beside_us", row["beside_us"]
        kernels = [self.program.kernels[key] for step in steps for key in step.kernels]
        if kernels:
            yield "kernels", [kernel.symbol for kernel in kernels]
            yield "registers", max(kernel.registers for kernel in kernels)
            yield "spills", max(kernel.spills for kernel in kernels)


def _readers(program: Program) -> dict[str, list[str]]:
    """Regions that read each buffer."""
    found: dict[str, list[str]] = {}
    for step in program.steps:
        for buffer in step.inputs:
            found.setdefault(buffer, []).append(step.region)
    return found


def _forms(rows: Sequence[Sequence[Any]]) -> tuple[TensorForm, ...]:
    return tuple(
        TensorForm(
            name=name,
            dims=None if shape is None else tuple(shape),
            dtype=dtype or "",
            layout=CHANNELS_LAST if is_image else ROW_MAJOR,
        )
        for name, dtype, shape, is_image in rows
    )


def _rival(row: Sequence[Any]) -> Rival:
    name, median_us, reason = row
    return Rival(name=name, median_us=median_us, reason=reason)
