# SPDX-License-Identifier: Apache-2.0
"""What halves are too narrow for in one model: seen as its references compute it in float32, and kept.

    FILE.wide    JSON beside the timing cache: what was found, by the digest of all that it follows from

The references compute in float64 and read all weights, so that seeing it takes as long as opening an engine
in float32. It holds for the same model, inputs, options, GPU and code, and is seen anew where one differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quantrt.calibrate.sample_hash import hash_sample
from quantrt.ir.kept_rows import KeptRows, digest_of
from quantrt.model.fingerprint import structure
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.source_digest import source_digest
from quantrt.tactics.cuda.program.trace import trace, trace_facts
from quantrt.tactics.cuda.program.wide import Wide, find_wide, with_sums
from quantrt.tactics.cuda.tactic import TensorFacts

__all__ = ["KeptWide", "WideValues"]

SUFFIX = ".wide"
FORMAT = "quantrt kept wide values"
SOURCES = ("ir", "kernels", "model", "operators", "regions", "runtime", "tactics")
"""Folders whose code makes the references and computes them."""

Arrays = Mapping[str, np.ndarray]


class KeptWide:
    """The file of one timing cache, for one model on one set of inputs.

    Args:
        timing_cache: whose name the file's begins with.
        environment: of the timings; see `timing_environment`.
        options: more that the references depend on, told by their `repr`.
    """

    def __init__(
        self,
        timing_cache: Path,
        model: Model,
        inputs: Arrays,
        environment: Mapping[str, str],
        options: Iterable[object] = (),
    ) -> None:
        self.path = timing_cache.with_name(timing_cache.name + SUFFIX)
        self._rows = KeptRows(self.path, FORMAT, "found", _wide)
        identity = (model.fingerprint.graph, model.fingerprint.weights, structure(model.graph))
        spelled = [repr(item) for item in (model.bindings, model.stored, *options)]
        self._key = digest_of(
            [identity, hash_sample(inputs), spelled, dict(environment), source_digest(SOURCES)]
        )

    def load(self) -> Wide | None:
        """What an earlier build saw; None where there was none."""
        return self._rows.load().get(self._key)

    def save(self, wide: Wide) -> None:
        """Keep it for later builds."""
        self._rows.add(self._key, {"values": sorted(wide.values), "sums": sorted(wide.sums)})


class WideValues:
    """What is known of one model so far.

    Args:
        reference: makes the program of references in float32.
        inputs: the samples of a build.
        device: that references run on.
        kept: where it is kept from one build to the next; None: nowhere.
    """

    def __init__(
        self,
        reference: Callable[[], Program],
        inputs: Arrays,
        device: torch.device,
        kept: KeptWide | None = None,
    ) -> None:
        self._reference = reference
        self._inputs = inputs
        self._device = device
        self._kept = kept
        self._found = None if kept is None else kept.load()

    def known(self) -> Wide:
        """On the samples of the build, and on others that were shown."""
        if self._found is None:
            self._see(self._reference())
        return self._found or Wide()

    def facts(self, program: Program) -> dict[str, TensorFacts]:
        """Of every buffer of the references in float32; what is too wide is seen on the way."""
        if self._found is None:
            return self._see(program)
        return trace_facts(program, self._inputs, self._device)

    def widen(self, samples: Iterable[Arrays]) -> bool:
        """See it on more samples; whether that is more than was known."""
        known, program = self.known(), with_sums(self._reference())
        traced = (trace(program, inputs, self._device) for inputs in samples)
        self._found = reduce(or_, (find_wide(one.ranges()) for one in traced), known)
        return self._found != known

    def _see(self, program: Program) -> dict[str, TensorFacts]:
        """What is too wide on the samples of the build, and the facts of every buffer."""
        traced = trace(with_sums(program), self._inputs, self._device)
        self._found = find_wide(traced.ranges())
        if self._kept is not None:
            self._kept.save(self._found)
        return traced.facts


def _wide(row: Any) -> Wide:
    return Wide(frozenset(_names(row["values"])), frozenset(_names(row["sums"])))


def _names(row: Any) -> list[str]:
    if not isinstance(row, list) or not all(isinstance(name, str) for name in row):
        raise TypeError(f"expected a list of names, not {row!r}")
    return row
