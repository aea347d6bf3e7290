# SPDX-License-Identifier: Apache-2.0
"""FP32 on a GPU, which is left out of a build where an earlier one has shown that it is far behind.

    FILE.floats    JSON beside the timing cache: how FP32 did beside 16-bit floats, by the digest of all that
                   it follows from

Without data FP32 has one part in a build, which is to be slower: no accuracy is held against it. Opening it
takes as long as the others together, and timing it longer. What it took is known for the same model, inputs,
options, GPU and code; the fastest engine of 16-bit floats is the yardstick then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.sample_hash import hash_sample
from quantrt.errors import DeviceError
from quantrt.ir.kept_rows import KeptRows, digest_of
from quantrt.model.fingerprint import structure
from quantrt.prepare import Job, Quantized
from quantrt.runtime.executor import Executor
from quantrt.source_digest import source_digest
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec, list_specs
from quantrt.tactics.time_candidates import HALVES
from quantrt.tactics.timing import Latency, compare_paired

__all__ = ["KeptFloats", "Lost", "kept_floats", "open_floats"]

SUFFIX = ".floats"
FORMAT = "quantrt kept floats"
SOURCES = ("ir", "kernels", "model", "operators", "plan", "regions", "runtime", "tactics")
"""Folders whose code makes engines of floats, runs and times them."""

FAR_RATIO = 1.5
"""Of the time of 16-bit floats: what surely takes longer is not shipped, whatever a machine does."""


@dataclass(frozen=True)
class Lost:
    """How FP32 was behind.

    Attributes:
        median_ms: of FP32.
        name, name_ms: of the fastest candidate in 16-bit floats, in the same rounds.
        lo: at least so many times as long FP32 took, for certain.
    """

    median_ms: float
    name: str
    name_ms: float
    lo: float
    rounds: int

    @property
    def reason(self) -> str:
        """For the report."""
        return (
            f"an earlier build with this timing cache timed it: {self.median_ms:.4g} ms, where {self.name} "
            f"took {self.name_ms:.4g} ms, and no data ask for its outputs"
        )


class KeptFloats:
    """The file of one timing cache, for one model and one way to build it.

    Args:
        timing_cache: None where FP32 is needed: nothing is known then, and nothing kept.
        origin: all that the times of its floats follow from, JSON-ready.
    """

    def __init__(self, timing_cache: Path | None, origin: object = None) -> None:
        path = None if timing_cache is None else timing_cache.with_name(timing_cache.name + SUFFIX)
        self._rows = None if path is None else KeptRows(path, FORMAT, "lost", _lost)
        self._key = digest_of(origin)

    def load(self) -> Lost | None:
        """How FP32 was behind in an earlier build; None where none has shown that."""
        return None if self._rows is None else self._rows.load().get(self._key)

    def keep(
        self, candidates: Mapping[str, Candidate], latencies: Mapping[str, Latency], opener: Opener
    ) -> None:
        """Keep how FP32 did, where it was far behind and its outputs are finite."""
        timed = {name: candidates[name].spec.precision for name in latencies}
        floats = [name for name, precision in timed.items() if precision == "fp32"]
        halves = [name for name, precision in timed.items() if precision in HALVES]
        if self._rows is None or not floats or not halves or not opener.has_finite_floats:
            return
        slow, fast = (min(names, key=lambda name: latencies[name].median_ms) for names in (floats, halves))
        pair = compare_paired(latencies[slow], latencies[fast])
        if pair.lo < FAR_RATIO:
            return
        lost = Lost(latencies[slow].median_ms, fast, latencies[fast].median_ms, pair.lo, pair.rounds)
        self._rows.add(self._key, asdict(lost))


def kept_floats(
    job: Job, quantized: Quantized, truth: Dataset | None, inputs: Mapping[str, np.ndarray], opener: Opener
) -> KeptFloats:
    """Where it is kept how FP32 does; nowhere where it is needed: for data, or weights in 4 bits beside it.

    Args:
        inputs: that are timed.
        opener: of this build's candidates.
    """
    config, model = job.config, job.model
    path, has_data = config.cuda.timing_cache, truth is not None or quantized.samples is not None
    precisions = {spec.precision for spec in list_specs(config, job.device)}
    if config.device.device != "cuda" or path is None or has_data or "int4" in precisions:
        return KeptFloats(None)
    if not precisions.intersection(HALVES):
        return KeptFloats(None)
    options = [repr(replace(config.cuda, timing_cache=None)), repr(config.bench), sorted(precisions)]
    origin = [
        [model.fingerprint.graph, model.fingerprint.weights, structure(model.graph)],
        [repr(model.bindings), repr(model.stored), *options],
        hash_sample(inputs),
        dict(opener.environment or {}),
        source_digest(SOURCES),
    ]
    return KeptFloats(Path(path), origin)


def open_floats(candidates: Mapping[str, Candidate], opener: Opener, stack: ExitStack) -> Executor:
    """FP32's executor; it is opened now where it was left out.

    Raises:
        DeviceError: it cannot be.
    """
    found = next((one for one in candidates.values() if one.spec.precision == "fp32"), None)
    if found is not None:
        return found.executor
    opened = opener.open(Spec("cuda", "fp32"), None)
    if isinstance(opened, Rejected):
        raise DeviceError(f"{opened.spec.name} cannot be opened", got=opened.reason)
    stack.callback(opened.executor.close)
    return opened.executor


def _lost(row: Mapping[str, object]) -> Lost:
    median_ms, name_ms, lo = (float(str(row[name])) for name in ("median_ms", "name_ms", "lo"))
    return Lost(median_ms, str(row["name"]), name_ms, lo, int(str(row["rounds"])))
