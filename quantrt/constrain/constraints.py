# SPDX-License-Identifier: Apache-2.0
"""All rules for layers together: what they come to before a build, and whether its engine keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quantrt.config import BuildConfig, ConstraintConfig
from quantrt.constrain.output_types import TYPES_FLAG, OutputTypes, read_types, types_on_cpu, types_on_gpu
from quantrt.constrain.placement import check_placed, check_placement
from quantrt.constrain.precisions import PRECISIONS_FLAG, LayerPrecisions, read_layer_precisions
from quantrt.constrain.rule import check_meaning
from quantrt.errors import UsageError
from quantrt.model.binding import Binding
from quantrt.model.model import Model
from quantrt.plan.plan import Layer
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.tactics.candidates import Candidate

__all__ = ["Constraints", "keep_rules", "read_constraints"]


@dataclass(frozen=True)
class Constraints:
    """What rules come to for one model on one device."""

    types: OutputTypes = field(default_factory=OutputTypes)
    precisions: LayerPrecisions = field(default_factory=LayerPrecisions)

    @property
    def stored(self) -> Mapping[str, Binding]:
        """On a GPU, the type of values that are stored."""
        return self.types.stored

    @property
    def without_scale(self) -> tuple[str, ...]:
        """Values whose codes need a scale."""
        return tuple(name for name, x in self.stored.items() if x.dtype == "int8" and x.scale is None)

    def why_not_types(self, shipped: QuantizedModel | None) -> Iterator[str]:
        """Rules for stored types that the engine of a CPU does not keep, one sentence each.

        Args:
            shipped: what is in it; None for a float engine.
        """
        values = frozenset() if shipped is None else shipped.placement.values
        for value, layer in self.types.kept_float.items():
            if value in values:
                yield f"layer '{layer}' cannot be fp32: its output is read as int8 codes"
        for value, layer in self.types.kept_codes.items():
            if shipped is None:
                yield f"layer '{layer}' cannot be int8: the engine that is shipped has none"
            elif value not in values:
                yield f"layer '{layer}' cannot be int8: nothing reads its output as codes"


def read_constraints(model: Model, config: BuildConfig) -> tuple[Constraints, BuildConfig]:
    """What the rules come to, and the options that keep them.

    Args:
        model: in the form that the device gets; on a GPU that of `quantrt.model.for_gpu`.

    Raises:
        UsageError: a rule cannot be read, or means no layer; or one cannot be kept, and none may be broken.
    """
    check_placement(model, config)
    found = Constraints(_output_types(model, config), read_layer_precisions(model, config))
    _check_kept(found.types.broken, found.precisions.broken, config.constraints)
    exclude = (*found.types.exclude, *found.precisions.exclude)
    if exclude:
        options = replace(config.quantize, exclude=(*config.quantize.exclude, *exclude))
        is_gpu = config.device.device == "cuda"
        config = replace(
            config,
            quantize=options,
            precisions=config.precisions if is_gpu else config.precisions - {"bf16"},
        )
    return found, config


def _output_types(model: Model, config: BuildConfig) -> OutputTypes:
    rules = tuple(read_types(text) for text in config.constraints.layer_output_types)
    if not rules:
        return OutputTypes()
    check_meaning(TYPES_FLAG, rules, model)
    return types_on_gpu(rules, model) if config.device.device == "cuda" else types_on_cpu(rules, model)


def keep_rules(
    constraints: Constraints,
    config: BuildConfig,
    winner: Candidate,
    layers: Sequence[Layer],
) -> tuple[str, ...]:
    """Rules that an engine does not keep and need not, one sentence each; those of before the build too.

    Args:
        config: with the options that keep them.
        winner: what is shipped.
        layers: every node of the model, with the precision that it has in the engine.

    Raises:
        UsageError: it does not keep a rule, and none may be broken.
        InternalError: a layer that has to stay float is 8-bit in it.
    """
    shipped = None if winner.fitted is None else winner.fitted.model
    check_placed(config.quantize, shipped, layers)
    types = tuple(constraints.why_not_types(shipped))
    if constraints.stored:
        types += tuple(constraints.types.why_not_stored(program_from_model(winner.model)))
    precisions = tuple(constraints.precisions.why_not(layers))
    _check_kept(types, precisions, config.constraints)
    return (*constraints.types.broken, *constraints.precisions.broken, *types, *precisions)


def _check_kept(types: Sequence[str], precisions: Sequence[str], config: ConstraintConfig) -> None:
    """Fail where a rule is not kept, unless that is allowed.

    Args:
        types, precisions: rules that are not kept, one sentence each.

    Raises:
        UsageError: names the first.
    """
    rules = (
        (types, config.prefer_layer_output_types, TYPES_FLAG),
        (precisions, config.prefer_layer_precisions, PRECISIONS_FLAG),
    )
    for broken, may_be, flag in rules:
        if broken and not may_be:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            raise UsageError(broken[0] + more, hint=f"--prefer-{flag.lstrip('-')} to go on without")
