# SPDX-License-Identifier: Apache-2.0
"""A calibration cache beside a model: which tensors it gives a range, which not, and what that costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quantrt.calibrate.caches.trt_cache import TrtCache
from quantrt.calibrate.given import Given, share_scales
from quantrt.calibrate.stats import Stats
from quantrt.config import QuantizeConfig
from quantrt.errors import DataError, UsageError, close_match
from quantrt.model.absent import tensors_of
from quantrt.model.model import Model
from quantrt.quantize.placement.known_ranges import KnownPlacement, place_known
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.target import Target

__all__ = ["MAX_UNKNOWN_RATIO", "CacheMatch", "match_notes", "match_cache"]

MAX_UNKNOWN_RATIO = 0.25
"""A cache of whose tensors more than this part is not in the model was made for another one."""

NO_SUCH_TENSOR = "the model has no such tensor"

MAX_NEAREST = 20
"""Unknown names that the nearest tensor is looked for: a search takes milliseconds."""

SHOWN = 3

OWN_TENSOR = re.compile(r"\(Unnamed Layer\* \d+\) \[[^\]]*\]_output|ONNXTRT_.*")
"""Names that TensorRT gives tensors of its own network: no ONNX file has them."""


@dataclass(frozen=True)
class CacheMatch:
    """What a cache means for a model.

    Attributes:
        given: the scales, by tensor of the canonical model.
        used: quantized tensors with a scale -> the tensor of the cache whose scale it is.
        idle: tensors of the cache that the model has, but that no target reads in 8 bits.
        unknown: tensors of the cache that the model has not -> why.
        missing: tensors that a target would quantize if they had a scale -> by target, the nodes that are
            float without.
        others: by target, nodes that are float because those are.
        invalid: tensors whose scale in the cache cannot be used -> why.
        notes: what a user should know, one sentence each.
    """

    cache: TrtCache
    given: Given
    used: Mapping[str, str]
    idle: tuple[str, ...]
    unknown: Mapping[str, str]
    missing: Mapping[str, Mapping[str, tuple[str, ...]]]
    others: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def invalid(self) -> Mapping[str, str]:
        """Tensors whose scale in the cache cannot be used -> why."""
        return self.cache.invalid


def match_cache(
    model: Model, cache: TrtCache, targets: Iterable[Target], config: QuantizeConfig | None = None
) -> CacheMatch:
    """Find the tensors of a cache in a model.

    A name that canonicalization took away is found where another tensor has the very same values. Tensors
    that only move the values of another share its scale bit for bit.

    Args:
        targets: whose rules say what is quantized.

    Raises:
        DataError: the cache is of another graph, or has no tensor that any target quantizes.
        UsageError: the model is quantized already; an exclusion matches nothing.
    """
    if is_quantized(model.graph.graph):
        raise UsageError(
            f"cannot use '{cache.name}': the model is quantized already, on scales of its own",
            hint="without --calib-cache: its own scales count, or the float model with it",
        )
    found, unknown = _find(model, cache)
    _check_graph(model, cache, unknown)
    given = share_scales(
        model.graph.graph, {name: cache.scales[line] for name, line in found.items()}, cache.name
    )
    known = {
        target.name: place_known(model.graph, target, config or QuantizeConfig(), given.scales, cache.name)
        for target in targets
    }
    quantized = frozenset().union(*(item.placement.values for item in known.values()))
    used = {name: found.get(given.shared.get(name, name), name) for name in sorted(quantized)}
    if not used:
        raise _nothing_used(model, cache, known)
    lines = set(used.values())
    idle = tuple(line for name, line in found.items() if name not in used and line not in lines)
    return CacheMatch(
        cache=cache,
        given=given,
        used=used,
        idle=idle,
        unknown=unknown,
        missing=_missing(known),
        others={name: item.others for name, item in known.items() if item.others},
        notes=tuple(_notes(model, cache, given)),
    )


def match_notes(match: CacheMatch, stats: Stats | None) -> tuple[str, ...]:
    """What became of a cache, one sentence each.

    Args:
        stats: what was observed to fill its gaps.
    """
    observed = {} if stats is None else stats.tensors
    notes = [f"{len(match.used)} scales are those of '{match.cache.name}'", *match.notes]
    filled = [name for name in match.missing if name in observed]
    if filled:
        notes.append(f"it has no scale of {_named(filled)}: observed on data instead")
    left = [name for name in match.missing if name not in observed]
    nodes = {node for name in left for nodes in match.missing[name].values() for node in nodes}
    if left:
        others = len({node for nodes in match.others.values() for node in nodes} - nodes)
        more = f", and {others} beside them" if others and not filled else ""
        notes.append(f"it has no scale of {_named(left)}: {_named(sorted(nodes), 'nodes')} stay float{more}")
    return tuple(notes)


def _named(names: Sequence[str], what: str = "tensors") -> str:
    """A count and the first few: "4 tensors ('a', 'b', 'c', ...)"."""
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} {what if len(names) != 1 else what.removesuffix('s')} ({shown})"


def _find(model: Model, cache: TrtCache) -> tuple[dict[str, str], dict[str, str]]:
    """Tensors of the model -> lines of the cache; and the lines of none, with the reason."""
    tensors = tensors_of(model.graph)
    inner = {value.name for node in model.graph.graph.all_nodes() for value in node.outputs}
    found: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for line in cache.scales:
        same = model.absent.get(line)
        if line in tensors and tensors[line].const_value is None:
            found[line] = line
        elif same is not None:
            found.setdefault(same, line)
        elif line in tensors or line in inner:
            unknown[line] = "a constant: weights are quantized on scales of their own"
        elif line in model.absent:
            unknown[line] = "folded into the node behind it: the model runs without this tensor"
        elif OWN_TENSOR.fullmatch(line):
            unknown[line] = "a tensor of TensorRT's own network"
        else:
            unknown[line] = NO_SUCH_TENSOR
    return found, unknown | _nearest(unknown, tensors)


def _nearest(unknown: Mapping[str, str], tensors: Iterable[str]) -> dict[str, str]:
    """Which tensor an unknown name may have meant, for as many as anybody reads."""
    gone = [line for line, reason in unknown.items() if reason == NO_SUCH_TENSOR][:MAX_NEAREST]
    names = list(tensors)
    found = {line: close_match(line, names) for line in gone}
    return {line: f"{NO_SUCH_TENSOR}, nearest '{near}'" for line, near in found.items() if near}


def _check_graph(model: Model, cache: TrtCache, unknown: Mapping[str, str]) -> None:
    """The cache is of this graph, as far as names and its origin tell."""
    gone = [line for line, reason in unknown.items() if reason.startswith(NO_SUCH_TENSOR)]
    named = [line for line in cache.scales if not OWN_TENSOR.fullmatch(line)]
    has_changed = cache.origin is not None and cache.origin.fingerprint.graph != model.fingerprint.graph
    if not gone or (not has_changed and len(gone) <= MAX_UNKNOWN_RATIO * len(named)):
        return
    shown = [f"'{line}'{unknown[line].removeprefix(NO_SUCH_TENSOR)}" for line in gone[:SHOWN]]
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    raise DataError(
        f"cannot use '{cache.name}' for {_model_name(model)}: it was made for another graph, "
        f"{len(gone)} of its {len(named)} tensors are not in this one",
        got="; ".join(shown) + more,
        expected="every tensor" if has_changed else f"at least {1 - MAX_UNKNOWN_RATIO:.0%} of them",
        hint="the model the cache was made for, or to calibrate this one: --calib-data P",
    )


def _nothing_used(model: Model, cache: TrtCache, known: Mapping[str, KnownPlacement]) -> DataError:
    wanted = sorted(frozenset().union(*(item.wanted for item in known.values())))
    if not wanted:
        return DataError(f"cannot use '{cache.name}': no target quantizes anything in {_model_name(model)}")
    near = close_match(wanted[0], cache.scales)
    return DataError(
        f"cannot use '{cache.name}' for {_model_name(model)}: it has no scale of the {len(wanted)} "
        "tensors that would be quantized",
        got=f"none of '{wanted[0]}'" + (f", nearest '{near}'" if near else ""),
        hint="to calibrate this model: --calib-data P",
    )


def _missing(known: Mapping[str, KnownPlacement]) -> dict[str, dict[str, tuple[str, ...]]]:
    missing: dict[str, dict[str, tuple[str, ...]]] = {}
    for target, item in known.items():
        for name, nodes in item.costs.items():
            missing.setdefault(name, {})[target] = nodes
    return missing


def _notes(model: Model, cache: TrtCache, given: Given) -> Sequence[str]:
    notes = list(cache.notes)
    if cache.invalid:
        name, reason = next(iter(cache.invalid.items()))
        notes.append(f"{len(cache.invalid)} scales cannot be used, such as that of '{name}': {reason}")
    origin = cache.origin
    if origin is not None and origin.fingerprint.graph != model.fingerprint.graph:
        notes.append("the cache was made for another graph, which had the same tensors")
    elif origin is not None and origin.fingerprint.weights != model.fingerprint.weights:
        notes.append("the cache was made for another checkpoint: its ranges may not fit these weights")
    if given.overruled:
        name = next(iter(given.overruled))
        notes.append(
            f"{len(given.overruled)} tensors take the scale of the one whose values they move, not their "
            f"own, such as '{name}' that of '{given.shared[name]}'"
        )
    return notes


def _model_name(model: Model) -> str:
    return f"'{model.path}'" if model.path is not None else "this model"
