# SPDX-License-Identifier: Apache-2.0
"""What a command line asks of the inference and of its reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quantrt.errors import UsageError
from quantrt.ir.atomic import check_writable
from quantrt.trtexec.flags.parse import Given
from quantrt.trtexec.flags.values import (
    Shape,
    read_files,
    read_number,
    read_percents,
    read_shapes,
    read_whole,
)

__all__ = ["RefPair", "ReportSettings", "RunSettings", "path_of", "read_report", "read_run"]

TOLERANCE = 1e-5
"""--atol and --rtol, when not given."""

MOST_STREAMS = 256
"""Each has a context, with activations of its own, and mostly a thread: more is a slip of the keyboard."""


@dataclass(frozen=True)
class RefPair:
    """Inputs from files, and the outputs they should give."""

    inputs: Mapping[str, Path] = field(default_factory=dict)
    outputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The inference.

    Attributes:
        shapes: by the input's name or a pattern of names.
        pairs: at least one; of the first the inputs are timed.
        warm_up_ms: runs that begin before it are not counted.
        duration_s: negative for no end.
        streams: inferences at once.
        copies: whether inputs are copied to a GPU and outputs from it.
        captures: whether a CUDA graph is recorded where it can be.
        algorithm: "l0", "l1", "l2", "lInf" or "cos".
        threshold: largest loss; None without references.
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    pairs: tuple[RefPair, ...] = (RefPair(),)
    iterations: int = 10
    warm_up_ms: float = 200.0
    duration_s: float = 3.0
    idle_ms: float = 0.0
    streams: int = 1
    uses_threads: bool = False
    copies: bool = True
    spins: bool = False
    captures: bool = True
    profile: int = 0
    times_opening: bool = False
    algorithm: str = "l0"
    threshold: float | None = None
    atol: float = TOLERANCE
    rtol: float = TOLERANCE

    @property
    def has_references(self) -> bool:
        """Whether outputs are compared with files."""
        return any(pair.outputs for pair in self.pairs)


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """What is printed and written."""

    is_verbose: bool = False
    avg_runs: int = 10
    percentiles: tuple[float, ...] = (90.0, 95.0, 99.0)
    dumps_output: bool = False
    dumps_raw: bool = False
    dumps_profile: bool = False
    dumps_layers: bool = False
    dumps_shape_profiles: bool = False
    times: Path | None = None
    output: Path | None = None
    profile: Path | None = None
    layers: Path | None = None

    @property
    def needs_profile(self) -> bool:
        """Whether layers have to be timed."""
        return self.dumps_profile or self.profile is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that will be written."""
        return tuple(path for path in (self.times, self.output, self.profile, self.layers) if path)


def read_run(given: Given) -> RunSettings:
    """The inference that the flags ask for.

    Raises:
        UsageError: a value cannot be read, or flags contradict one another.
    """
    for name in ("--sleepTime", "--persistentCacheRatio"):
        if _number(given, name, 0.0) > 0:
            raise UsageError(f"{name}={given.text(name)} cannot be done", expected="0")
    pairs = _read_pairs(given)
    algorithm = given.text("--accuracyAlgorithm") or "l0"
    threshold = _number(given, "--accuracyThreshold", 0.0) or None
    if any(pair.outputs for pair in pairs) and threshold is None:
        raise UsageError(
            "outputs cannot be compared without a limit",
            expected="a loss above 0",
            hint="--accuracyThreshold=X",
        )
    for name in ("--atol", "--rtol"):
        if given.has(name) and algorithm != "l0":
            raise UsageError(f"{name} is of --accuracyAlgorithm=l0 alone", got=algorithm)
    shapes = given.text("--shapes")
    return RunSettings(
        shapes=read_shapes("--shapes", shapes) if shapes is not None else {},
        pairs=pairs,
        iterations=_whole(given, "--iterations", 10),
        warm_up_ms=_number(given, "--warmUp", 200.0),
        duration_s=_number(given, "--duration", 3.0, least=-1.0),
        idle_ms=_number(given, "--idleTime", 0.0),
        streams=_streams(given),
        uses_threads=given.has("--threads"),
        copies=not given.has("--noDataTransfers"),
        spins=given.has("--useSpinWait"),
        captures=not given.has("--noCudaGraph"),
        profile=_whole(given, "--useProfile", 0),
        times_opening=given.has("--timeDeserialize"),
        algorithm=algorithm,
        threshold=threshold,
        atol=_number(given, "--atol", TOLERANCE),
        rtol=_number(given, "--rtol", TOLERANCE),
    )


def read_report(given: Given) -> ReportSettings:
    """The reports that the flags ask for.

    Raises:
        UsageError: a value cannot be read, or a file cannot be written where it is asked for.
    """
    percents = given.text("--percentile")
    found = ReportSettings(
        is_verbose=given.has("--verbose"),
        avg_runs=_whole(given, "--avgRuns", 10, least=1),
        percentiles=read_percents("--percentile", percents) if percents else (90.0, 95.0, 99.0),
        dumps_output=given.has("--dumpOutput"),
        dumps_raw=given.has("--dumpRawBindingsToFile"),
        dumps_profile=given.has("--dumpProfile"),
        dumps_layers=given.has("--dumpLayerInfo"),
        dumps_shape_profiles=given.has("--dumpOptimizationProfile"),
        times=path_of(given, "--exportTimes"),
        output=path_of(given, "--exportOutput"),
        profile=path_of(given, "--exportProfile"),
        layers=path_of(given, "--exportLayerInfo"),
    )
    for path in found.files:
        check_writable(path)
    return found


def _read_pairs(given: Given) -> tuple[RefPair, ...]:
    """The pairs of --refPair, or the one without it."""
    groups: dict[int, dict[str, dict[str, Path]]] = {}
    number: int | None = None
    for flag, text in given.items:
        if flag.name == "--refPair":
            number = read_whole("--refPair", text)
            if number in groups:
                raise UsageError(f"--refPair={number} is given twice")
            groups[number] = {}
        elif flag.name in ("--loadInputs", "--loadRefOutputs"):
            files = groups.setdefault(0 if number is None else number, {}).setdefault(flag.name, {})
            for name, path in read_files(flag.name, text).items():
                if files.setdefault(name, path) != path:
                    raise UsageError(
                        f"{flag.name} gives '{name}' two files",
                        got=f"'{files[name]}' and '{path}'",
                        hint="--refPair=N before each pair of inputs and references",
                    )
    pairs = tuple(
        RefPair(groups[index].get("--loadInputs", {}), groups[index].get("--loadRefOutputs", {}))
        for index in sorted(groups)
    )
    if any(pair.outputs and not pair.inputs for pair in pairs):
        raise UsageError("--loadRefOutputs needs the inputs that they are of", hint="--loadInputs=NAME:FILE")
    return pairs or (RefPair(),)


def _streams(given: Given) -> int:
    streams = _whole(given, "--infStreams", 1, least=1)
    if streams > MOST_STREAMS:
        raise UsageError(
            f"--infStreams={streams} cannot be done: every stream has a context and memory of its own",
            expected=f"at most {MOST_STREAMS}",
        )
    return streams


def _whole(given: Given, name: str, default: int, *, least: int = 0) -> int:
    text = given.text(name)
    return default if text is None else read_whole(name, text, least=least)


def _number(given: Given, name: str, default: float, *, least: float = 0.0) -> float:
    text = given.text(name)
    return default if text is None else read_number(name, text, least=least)


def path_of(given: Given, name: str) -> Path | None:
    """The file that a flag names; None where it was not given.

    Raises:
        UsageError: its value is empty.
    """
    text = given.text(name)
    if text == "":
        raise UsageError(f"{name} needs the name of a file")
    return None if text is None else Path(text).expanduser()
