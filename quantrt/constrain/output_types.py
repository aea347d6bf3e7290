# SPDX-License-Identifier: Apache-2.0
"""Rules for the types that layers store their outputs in: what each means for an engine.

On a GPU every kernel can store floats of any type, or int8 codes where there is a range. What stays inside a
kernel is float32 and is not stored: a rule for it is one for what the kernel stores. The libraries of a CPU
run whole models: there fp32 keeps a layer and what reads it out of int8, and int8 is only checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from quantrt.constrain.rule import Rule, rule_of, split_rule
from quantrt.errors import UsageError, close_match
from quantrt.ir.name_pattern import literal
from quantrt.model.binding import FLOATS, SHORT_NAMES, TYPES, Binding
from quantrt.model.model import Model
from quantrt.plan.program import Program, codes_of
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.regions.partition import partition
from quantrt.regions.region import Attention, Conv, Gemm, Host, Pool, Region, Rows, View

__all__ = ["TYPES_FLAG", "OutputTypes", "read_types", "types_on_cpu", "types_on_gpu"]

TYPES_FLAG = "--layer-output-types"

STORES_CODES = Attention | Conv | Gemm | Pool | Rows
"""Formulas whose kernels store codes."""


@dataclass(frozen=True)
class OutputTypes:
    """What the rules come to for one model on one device.

    Attributes:
        stored: on a GPU, the type of values that are stored; codes lack their scale until there are ranges.
        kept_float: on a CPU, values that no node may read as codes -> the layer that the rule is for.
        kept_codes: on a CPU, values that have to be codes -> the layer.
        exclude: globs of the nodes that stay float for `kept_float`.
        broken: rules that cannot be kept, one sentence each.
    """

    stored: Mapping[str, Binding] = field(default_factory=dict)
    kept_float: Mapping[str, str] = field(default_factory=dict)
    kept_codes: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def why_not_stored(self, program: Program) -> Iterator[str]:
        """Rules that a program for a GPU does not keep, one sentence each."""
        regions = program.notes["regions"].values()
        for value, binding in self.stored.items():
            forms = {value, codes_of(value)}
            # What reads a form of a value and makes another is a conversion behind the layer.
            makers = [row for row in regions if not forms & {buffer for buffer, *_ in row["inputs"]}]
            made = {dtype for row in makers for buffer, dtype, *_ in row["outputs"] if buffer in forms}
            if made != {binding.dtype}:
                found = " and ".join(sorted(made)) or "nothing"
                yield f"'{value}' cannot be {binding.dtype}: the engine stores {found}"


def read_types(text: str) -> Rule:
    """One rule of --layer-output-types; types by their names in numpy.

    Raises:
        UsageError: it is none.
    """
    pattern, words = split_rule(text)
    wrong = next((word for word in words if word not in TYPES and word not in SHORT_NAMES), None)
    if not pattern or wrong is not None:
        near = close_match(wrong or "", TYPES)
        raise UsageError(
            f"cannot read '{text}' of {TYPES_FLAG}",
            expected="LAYER:TYPE or LAYER:TYPE+TYPE, of " + ", ".join(TYPES),
            hint=f"'{near}'" if near else None,
        )
    return Rule(pattern, tuple(TYPES.get(word, word) for word in words))


def _own_type(value: ir.Value) -> str:
    return "float32" if value.dtype is None else str(value.dtype.numpy())


def types_on_gpu(rules: Sequence[Rule], model: Model) -> OutputTypes:
    """What kernels have to store for the rules."""
    if is_quantized(model.graph.graph):
        return OutputTypes(broken=("the types of layers are those that the Q/DQ nodes of the model say",))
    nodes = {node.name or "": node for node in model.graph.graph}
    stored: dict[str, tuple[int, Binding]] = {}
    broken: list[str] = []
    for region in partition(model.graph).regions:
        for name in region.nodes:
            found = rule_of(rules, nodes[name])
            if found is None:
                continue
            number, rule = found
            for value, dtype in _stored_by(nodes[name], region, nodes, rule):
                reason = _why_not_stored(region, value, dtype, is_glob=rule.is_glob)
                if reason:
                    broken.append(f"layer '{name}' cannot be {dtype}: {reason}")
                elif reason is None and stored.get(value.name or "", (-1,))[0] <= number:
                    stored[value.name or ""] = (number, Binding(dtype))
    return OutputTypes(stored={name: x for name, (_, x) in stored.items()}, broken=tuple(broken))


def _stored_by(
    node: ir.Node, region: Region, nodes: Mapping[str, ir.Node], rule: Rule
) -> Iterator[tuple[ir.Value, str]]:
    """What a rule for a node is one for: its outputs that are stored, or else all that its kernel stores."""
    own = [(value, rule.type_of(place)) for place, value in enumerate(node.outputs)]
    outside = [(value, dtype) for value, dtype in own if value.name in region.outputs]
    if not outside:
        made = {value.name: value for name in region.nodes for value in nodes[name].outputs}
        outside = [(made[name], rule.type_of(0)) for name in region.outputs]
    yield from ((value, dtype) for value, dtype in outside if dtype is not None)


def _why_not_stored(region: Region, value: ir.Value, dtype: str, *, is_glob: bool) -> str | None:
    """Why a value cannot be stored in a type; empty where that is not meant, None when it can."""
    own = _own_type(value)
    if own not in FLOATS:
        return "" if is_glob or own == dtype else f"its output is {own}"
    if dtype not in (*FLOATS, "int8"):
        return "its output is a float"
    if isinstance(region.formula, View | Host):
        return "" if is_glob else "it moves values, which keep their type"
    if dtype == "int8" and not isinstance(region.formula, STORES_CODES):
        return "" if is_glob else "no kernel of it stores codes"
    return None


def types_on_cpu(rules: Sequence[Rule], model: Model) -> OutputTypes:
    """What has to stay float for the rules, and what has to be codes."""
    kept_float: dict[str, str] = {}
    kept_codes: dict[str, str] = {}
    exclude: dict[str, None] = {}
    broken: list[str] = []
    for node in model.graph.graph:
        found = rule_of(rules, node)
        if found is None:
            continue
        name, rule = node.name or "", found[1]
        for number, value in enumerate(node.outputs):
            own, dtype = _own_type(value), rule.type_of(number)
            if dtype is None or own not in FLOATS:
                if dtype is not None and dtype != own and not rule.is_glob:
                    broken.append(f"layer '{name}' cannot be {dtype}: its output is {own}")
            elif any(use.node.op_type == "QuantizeLinear" for use in value.uses()):
                if dtype != "int8":
                    broken.append(f"layer '{name}' cannot be {dtype}: the model itself quantizes its output")
            elif dtype == "float32":
                kept_float[value.name or ""] = name
                users = (use.node for use in value.uses())
                exclude.update(
                    dict.fromkeys(user.name or "" for user in (node, *users) if user.graph is node.graph)
                )
            elif dtype == "int8":
                kept_codes[value.name or ""] = name
            else:
                broken.append(
                    f"layer '{name}' cannot be {dtype}: the libraries of a CPU store float32, or int8 codes"
                )
    globs = tuple(literal(name) for name in exclude)
    return OutputTypes(kept_float=kept_float, kept_codes=kept_codes, exclude=globs, broken=tuple(broken))
