# SPDX-License-Identifier: Apache-2.0
"""Rules for the types that layers store their outputs in: what each means for an engine, whether it holds.

On a GPU every kernel can store floats of any type, or int8 codes where there is a range. What stays inside a
kernel is float32 and is not stored: a rule for it is one for what the kernel stores. The libraries of a CPU
run whole models: there fp32 keeps a layer and what reads it out of int8, and int8 is only checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from quantrt.config import BuildConfig, ConstraintConfig
from quantrt.errors import UsageError, close_match
from quantrt.ir.name_pattern import is_meant, literal
from quantrt.ir.sources import sources_of
from quantrt.model.binding import FLOATS, SHORT_NAMES, TYPES, Binding
from quantrt.model.model import Model
from quantrt.quantize.placement import is_quantized
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.regions.partition import partition
from quantrt.regions.region import Attention, Conv, Gemm, Host, Pool, Region, Rows, View

__all__ = ["Constraints", "check_kept", "read_constraints"]

FLAG = "--layer-output-types"

STORES_CODES = Attention | Conv | Gemm | Pool | Rows
"""Formulas whose kernels store codes."""


@dataclass(frozen=True)
class Constraints:
    """What rules come to for one model on one device.

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

    @property
    def without_scale(self) -> tuple[str, ...]:
        """Values whose codes need a scale."""
        return tuple(name for name, x in self.stored.items() if x.dtype == "int8" and x.scale is None)

    def why_not(self, shipped: QuantizedModel | None) -> Iterator[str]:
        """Rules that the engine of a CPU does not keep, one sentence each.

        Args:
            shipped: what is in it; None for a float engine.
        """
        values = frozenset() if shipped is None else shipped.placement.values
        for value, layer in self.kept_float.items():
            if value in values:
                yield f"layer '{layer}' cannot be fp32: its output is read as int8 codes"
        for value, layer in self.kept_codes.items():
            if shipped is None:
                yield f"layer '{layer}' cannot be int8: the engine that is shipped has none"
            elif value not in values:
                yield f"layer '{layer}' cannot be int8: nothing reads its output as codes"


@dataclass(frozen=True)
class _Rule:
    """One rule.

    Attributes:
        types: of each output; one for all.
    """

    pattern: str
    types: tuple[str, ...]

    def type_of(self, number: int) -> str | None:
        """Numpy's name of the type of an output, by its number."""
        if len(self.types) == 1:
            return self.types[0]
        return self.types[number] if number < len(self.types) else None

    def means(self, node: ir.Node) -> bool:
        """Whether the rule is for a node, by its name or that of a node of the file that is in it."""
        return any(is_meant(name, self.pattern) for name in (node.name or "", *sources_of(node)))

    @property
    def is_glob(self) -> bool:
        """Whether it may mean more layers than one, some of which it cannot be meant for."""
        return "*" in self.pattern


def read_constraints(model: Model, config: BuildConfig) -> tuple[Constraints, BuildConfig]:
    """What the rules come to, and the options that keep them.

    Args:
        model: in the form that the device gets; on a GPU that of `quantrt.model.for_gpu`.

    Raises:
        UsageError: a rule cannot be read, or means no layer; or one cannot be kept, and none may be broken.
    """
    rules = tuple(_read(text) for text in config.constraints.layer_output_types)
    if not rules:
        return Constraints(), config
    _check_meaning(rules, model)
    found = _on_gpu(rules, model) if config.device.device == "cuda" else _on_cpu(rules, model)
    check_kept(found.broken, config.constraints)
    if found.kept_float:
        options = replace(config.quantize, exclude=(*config.quantize.exclude, *found.exclude))
        config = replace(config, quantize=options, precisions=config.precisions - {"bf16"})
    return found, config


def check_kept(broken: Sequence[str], config: ConstraintConfig) -> None:
    """Fail where a rule is not kept, unless that is allowed.

    Raises:
        UsageError: names the first.
    """
    if broken and not config.prefer_layer_output_types:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise UsageError(broken[0] + more, hint="--prefer-layer-output-types to go on without")


def _read(text: str) -> _Rule:
    pattern, colon, types = text.rpartition(":")
    words = tuple(types.split("+"))
    wrong = next((word for word in words if word not in TYPES and word not in SHORT_NAMES), None)
    if not colon or not pattern or wrong is not None:
        near = close_match(wrong or "", TYPES)
        raise UsageError(
            f"cannot read '{text}' of {FLAG}",
            expected="LAYER:TYPE or LAYER:TYPE+TYPE, of " + ", ".join(TYPES),
            hint=f"'{near}'" if near else None,
        )
    return _Rule(pattern.strip("'\""), tuple(TYPES.get(word, word) for word in words))


def _check_meaning(rules: Sequence[_Rule], model: Model) -> None:
    nodes = list(model.graph.graph)
    for rule in rules:
        if not any(rule.means(node) for node in nodes):
            known = [name for node in nodes for name in (node.name or "", *sources_of(node))]
            near = close_match(rule.pattern, known)
            raise UsageError(
                f"{FLAG}: the model has no layer '{rule.pattern}'",
                expected=f"a name or pattern of its {len(nodes)} nodes, such as '{known[0]}'",
                hint=f"'{near}'" if near else "`quantrt inspect MODEL.onnx --layers`",
            )


def _rule_of(rules: Sequence[_Rule], node: ir.Node) -> tuple[int, _Rule] | None:
    """The last rule for a node, and its number."""
    found = [(number, rule) for number, rule in enumerate(rules) if rule.means(node)]
    return found[-1] if found else None


def _own_type(value: ir.Value) -> str:
    return "float32" if value.dtype is None else str(value.dtype.numpy())


def _on_gpu(rules: Sequence[_Rule], model: Model) -> Constraints:
    if is_quantized(model.graph.graph):
        return Constraints(broken=("the types of layers are those that the Q/DQ nodes of the model say",))
    nodes = {node.name or "": node for node in model.graph.graph}
    stored: dict[str, tuple[int, Binding]] = {}
    broken: list[str] = []
    for region in partition(model.graph).regions:
        for name in region.nodes:
            found = _rule_of(rules, nodes[name])
            if found is None:
                continue
            number, rule = found
            for value, dtype in _stored_by(nodes[name], region, nodes, rule):
                reason = _why_not_stored(region, value, dtype, is_glob=rule.is_glob)
                if reason:
                    broken.append(f"layer '{name}' cannot be {dtype}: {reason}")
                elif reason is None and stored.get(value.name or "", (-1,))[0] <= number:
                    stored[value.name or ""] = (number, Binding(dtype))
    return Constraints(stored={name: x for name, (_, x) in stored.items()}, broken=tuple(broken))


def _stored_by(
    node: ir.Node, region: Region, nodes: Mapping[str, ir.Node], rule: _Rule
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


def _on_cpu(rules: Sequence[_Rule], model: Model) -> Constraints:
    kept_float: dict[str, str] = {}
    kept_codes: dict[str, str] = {}
    exclude: dict[str, None] = {}
    broken: list[str] = []
    for node in model.graph.graph:
        found = _rule_of(rules, node)
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
    return Constraints(kept_float=kept_float, kept_codes=kept_codes, exclude=globs, broken=tuple(broken))
