# SPDX-License-Identifier: Apache-2.0
"""--layerPrecisions in QuantRT's terms: a layer can be kept out of codes, and nothing else can be forced."""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.config import ConstraintConfig
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import UsageError
from quantrt.ir.name_pattern import as_glob, is_meant
from quantrt.trtexec.flags.settings import BuildSettings

__all__ = ["LayerRules", "layer_rules", "output_rules"]

FLOATS = ("fp32", "fp16", "bf16")
KNOWN = (*FLOATS, *CODE_PRECISIONS)


@dataclass(frozen=True)
class LayerRules:
    """What the rules come to.

    Attributes:
        exclude: globs of nodes that stay float.
        precisions: those still allowed, without fp32.
        notes: rules that are not kept, one sentence each.
    """

    exclude: tuple[str, ...]
    precisions: frozenset[str]
    notes: tuple[str, ...]


def layer_rules(settings: BuildSettings, precisions: frozenset[str], *, is_gpu: bool) -> LayerRules:
    """The rules of --layerPrecisions under --precisionConstraints; of two for one layer the later counts.

    Raises:
        UsageError: a type is unknown, a later rule takes a layer out of an earlier pattern, or under "obey"
            a rule cannot be kept.
    """
    rules = dict(settings.layer_precisions)
    for kind in rules.values():
        if kind not in KNOWN:
            raise UsageError(
                f"--layerPrecisions: layers cannot be {kind}", expected="one of " + ", ".join(KNOWN)
            )
    if not rules or settings.constraint == "none":
        dropped = ("--layerPrecisions: nothing is done without --precisionConstraints=obey or prefer",)
        return LayerRules((), precisions, dropped if rules else ())
    exclude = [layer for layer, kind in rules.items() if kind in FLOATS]
    broken = [
        reason for layer, kind in rules.items() if (reason := _why_not(layer, kind, precisions, is_gpu))
    ]
    _check_patterns(rules)
    if "fp32" in rules.values() and not is_gpu and "bf16" in precisions:
        precisions = precisions - {"bf16"}
    if broken and settings.constraint == "obey":
        raise UsageError(broken[0], hint="--precisionConstraints=prefer")
    globs = tuple(as_glob(layer) for layer in exclude)
    return LayerRules(globs if precisions & {*CODE_PRECISIONS} else (), precisions, tuple(broken))


def output_rules(settings: BuildSettings, notes: list[str]) -> ConstraintConfig:
    """The rules of --layerOutputTypes under --precisionConstraints.

    Args:
        notes: is told of rules that are dropped.
    """
    rules = settings.layer_output_types
    if rules and settings.constraint == "none":
        notes.append("--layerOutputTypes: nothing is done without --precisionConstraints=obey or prefer")
        return ConstraintConfig()
    return ConstraintConfig(
        layer_output_types=tuple(f"{layer}:{types}" for layer, types in rules),
        prefer_layer_output_types=settings.constraint == "prefer",
    )


def _why_not(layer: str, kind: str, precisions: frozenset[str], is_gpu: bool) -> str | None:
    """Why a rule is not kept; None when it is."""
    if kind in CODE_PRECISIONS:
        return (
            f"layer '{layer}' cannot be forced to {kind}: it is {kind} where that is faster and in the budget"
        )
    floats = precisions & {"fp16", "bf16"} if is_gpu else frozenset({"fp32"})
    if floats in ({kind}, frozenset()):
        return None
    codes = " and ".join(name for name in CODE_PRECISIONS if name in precisions) or "int8"
    others = " or ".join(sorted(floats))
    return f"layer '{layer}' cannot be kept in {kind}: outside {codes} this engine is {others}"


def _check_patterns(rules: dict[str, str]) -> None:
    """A glob that stays float cannot spare one of its layers."""
    floats = [layer for layer, kind in rules.items() if kind in FLOATS and "*" in layer]
    for layer, kind in rules.items():
        caught = next((glob for glob in floats if glob != layer and is_meant(layer, glob)), None)
        if kind in CODE_PRECISIONS and caught is not None:
            raise UsageError(
                f"--layerPrecisions: '{layer}' cannot be taken out of '{caught}'",
                hint="the other layers of the pattern one by one",
            )
