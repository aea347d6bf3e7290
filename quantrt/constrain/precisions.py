# SPDX-License-Identifier: Apache-2.0
"""Rules for the precisions that layers run in, such as `/head/*:fp32`.

A float precision keeps a layer out of codes, on any device. That is fp32 on a CPU; on a GPU the floats of an
engine are fp16 or bf16, all of them, so fp32 is refused there. Codes cannot be forced: int8 is asked of what
is shipped, and an engine in which the layer has none is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from quantrt.config import PRECISIONS, BuildConfig
from quantrt.constrain.rule import Rule, check_meaning, rule_of, split_rule
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError, close_match
from quantrt.ir.name_pattern import literal
from quantrt.model.model import Model
from quantrt.plan.plan import Layer
from quantrt.quantize.placement.obstacle import is_quantized

__all__ = ["PRECISIONS_FLAG", "LayerPrecisions", "read_layer_precisions"]

PRECISIONS_FLAG = "--layer-precisions"

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Attention")
"""Operators that a pattern with codes is meant for; a name alone means any."""


@dataclass(frozen=True)
class LayerPrecisions:
    """What the rules come to.

    Attributes:
        wanted: the precision that each layer has to run in, by node.
        exclude: globs of the nodes that stay float.
        broken: rules that cannot be kept, one sentence each.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def codes(self) -> frozenset[str]:
        """Nodes that have to be in codes."""
        return frozenset(name for name, precision in self.wanted.items() if precision in CODE_PRECISIONS)

    def why_not(self, layers: Sequence[Layer]) -> Iterator[str]:
        """Rules that an engine with these layers does not keep, one sentence each."""
        for layer in layers:
            wanted = self.wanted.get(layer.name)
            if wanted is not None and layer.precision != wanted:
                what = f"layer '{layer.name}' is not {wanted} but {layer.precision} in the fastest engine"
                yield f"{what}, {layer.reason}" if layer.reason else what


def read_layer_precisions(model: Model, config: BuildConfig) -> LayerPrecisions:
    """What the rules of a configuration come to for a model.

    Raises:
        UsageError: a rule cannot be read, or means no layer.
    """
    rules = tuple(_read(text) for text in config.constraints.layer_precisions)
    check_meaning(PRECISIONS_FLAG, rules, model)
    if rules and is_quantized(model.graph.graph):
        return LayerPrecisions(broken=("the precisions of layers are those that the model was quantized to",))
    wanted: dict[str, str] = {}
    broken: dict[str, None] = {}
    for node in model.graph.graph:
        found = rule_of(rules, node)
        if found is None:
            continue
        rule, precision = found[1], found[1].types[0]
        is_meant = not rule.is_glob or node.op_type in LAYERS or precision not in CODE_PRECISIONS
        reason = _why_not(rule.pattern, precision, config)
        if reason is not None:
            broken[reason] = None
        elif is_meant:
            wanted[node.name or ""] = precision
    exclude = tuple(literal(name) for name, kind in wanted.items() if kind not in CODE_PRECISIONS)
    return LayerPrecisions(wanted, exclude, tuple(broken))


def _read(text: str) -> Rule:
    pattern, words = split_rule(text)
    if not pattern or len(words) != 1 or words[0] not in PRECISIONS:
        near = close_match(words[0], PRECISIONS)
        raise UsageError(
            f"cannot read '{text}' of {PRECISIONS_FLAG}",
            expected="LAYER:PRECISION, of " + ", ".join(PRECISIONS),
            hint=f"'{near}'" if near else None,
        )
    return Rule(pattern, words)


def _why_not(pattern: str, precision: str, config: BuildConfig) -> str | None:
    """Why a rule cannot be kept; None where it can, as far as is known before the build."""
    what = f"layer '{pattern}' cannot be {precision}"
    if precision in CODE_PRECISIONS:
        return None if precision in config.precisions else f"{what}: --{precision} is not asked for"
    if config.device.device != "cuda":
        return None if precision == "fp32" else f"{what}: the libraries of a CPU compute its layers in fp32"
    if precision == "fp32":
        return f"{what}: floats on a GPU are fp16 or bf16; --layer-output-types stores a result in fp32"
    floats = "bf16" if "bf16" in config.precisions else "fp16"
    return None if precision == floats else f"{what}: outside codes this engine is {floats}"
