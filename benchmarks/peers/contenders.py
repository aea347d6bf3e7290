# SPDX-License-Identifier: Apache-2.0
"""Everything whose accuracy is compared on one task: QuantRT's int8 models and the peers' tools' own."""

__all__ = [
    "ACCURATE",
    "BUILD_BENCH",
    "CONTROL",
    "CONTROLLED_DROP_RATIO",
    "TO_TARGET",
    "Contender",
    "Opened",
    "QuantRt",
    "Run",
    "limited",
    "make_quantrt",
    "nncf_controlled",
    "peer_contenders",
]

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.model_optimizer import model_optimizer_int8
from benchmarks.peers.on_codes import file_products, placed_products
from benchmarks.peers.peers import (
    Calibrator,
    Runner,
    nncf_accuracy_control,
    nncf_int8,
    open_openvino,
    open_ort,
    ort_int8,
    ort_int8_u8s8,
)
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.task import Outputs, Task
from quantrt.build import build
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BenchConfig, BuildConfig
from quantrt.device import describe_device
from quantrt.model.load import load_model
from quantrt.quantize.fit.equalized import EQUALIZED, STREAMS
from quantrt.quantize.fit.fit import Fitted, fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.quantize import observed_values
from quantrt.recipe import load_recipe
from quantrt.runtime.engine import Engine
from quantrt.tactics.candidates import Opener, Rejected, Spec, int8_target

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

BUILD_BENCH = BenchConfig(duration_s=1.0, max_duration_s=4.0)
"""Enough to tell candidates apart here; the figures of this benchmark are accuracies, not times."""

ACCURATE = "accurate"
"""The recipe that is measured beside what happens without one."""

MODEL_OPTIMIZER_METHODS: tuple[Literal["max", "entropy"], ...] = ("max", "entropy")
CALIBRATORS: tuple[Calibrator, ...] = ("Entropy", "Percentile")
"""Of ONNX Runtime beside its default."""

CONTROL = "nncf control"
"""The one peer that leaves products in floats until a target is kept."""

TO_TARGET = f"{ACCURATE} to target"
"""What the recipe makes to the same target, where it may leave products in floats too."""

CONTROLLED_DROP_RATIO = 0.01
"""What accuracy control may lose: the default of `quantrt build`, and of NNCF's absolute drop."""


@dataclass(frozen=True)
class Opened:
    """A quantized model that runs.

    Attributes:
        facts: what is known of it, JSON-ready: `products` and how many of these are `in_floats`, where they
            were counted.
    """

    run: Run
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A quantized model that is opened while it is measured.

    Attributes:
        name: a column of the results.
    """

    name: str
    open: Callable[[], AbstractContextManager[Opened]]


@dataclass(frozen=True)
class QuantRt:
    """What QuantRT made of a task.

    Attributes:
        int8: library of the int8 engine: the faster of the int8 candidates on this machine.
        engine: what `quantrt.build` ships with its default budget.
        methods: range method of each library's int8 model.
    """

    contenders: list[Contender]
    int8: str
    engine: Engine
    methods: dict[str, str]


def make_quantrt(task: Task) -> QuantRt:
    """Calibrate once, quantize for both libraries, and build an engine of the same statistics."""
    model = load_model(task.path)
    config = BuildConfig(precisions=frozenset({"fp32", "int8"}), bench=BUILD_BENCH)
    accurate = load_recipe(ACCURATE).quantize_config()
    device = describe_device(with_gpu=False)
    targets = {library: int8_target(library, device) for library in config.device.libraries}
    samples = open_dataset(task.calibration, model.inputs)
    names = observed_values(model, tuple(targets.values()), config.quantize)
    stats, reference = observe(model, names, samples, accurate, config.calibration)
    equalized = tuple(twin for twin in reference.twins if twin.label in (EQUALIZED, STREAMS))
    ways = {
        "quantrt": (replace(reference, twins=equalized), config.quantize),
        ACCURATE: (reference, accurate),
    }
    fits = {
        f"{way} {library}": fit(model, stats, target, seen, config=options, calibration=config.calibration)
        for way, (seen, options) in ways.items()
        for library, target in targets.items()
    }
    engine = build(model, config=config, stats=stats, calibration=samples, validation=task.build_validation)
    opener = Opener(model, config, task.calibration[0])
    contenders = [
        Contender(name, partial(_open_int8, opener, name.split()[-1], fitted))
        for name, fitted in fits.items()
    ]
    methods = {name: fitted.method for name, fitted in fits.items()}
    return QuantRt(contenders, _fastest_int8(engine), engine, methods)


def peer_contenders(
    task: Task, model_optimizer: Path | None = None, *, control_limit_s: int | None = None
) -> list[Contender]:
    """The peers' quantizers, each run in its own library; Model-Optimizer's in ONNX Runtime.

    Args:
        model_optimizer: a Python that has it; None leaves it out.
        control_limit_s: processor seconds for NNCF's accuracy control, which runs all calibration samples
            once for each layer, often; None for all that it wants, 0 to leave it out.
    """
    nncf = partial(open_openvino, precision="f32")
    peers = [
        Contender("ort default", partial(_open_peer, task, ort_int8, ".onnx", open_ort)),
        Contender("nncf default", partial(_open_peer, task, nncf_int8, ".xml", nncf)),
    ]
    read = partial(nncf_int8, is_converted=False)
    peers.append(Contender("nncf read_model", partial(_open_peer, task, read, ".xml", nncf)))
    if task.is_transformer:
        quantize = partial(nncf_int8, is_transformer=True)
        peers.append(Contender("nncf transformer", partial(_open_peer, task, quantize, ".xml", nncf)))
    if control_limit_s != 0:
        controlled = partial(nncf_controlled, task, limit_s=control_limit_s)
        peers.append(Contender(CONTROL, partial(_open_peer, task, controlled, ".xml", nncf)))
    for calibrator in CALIBRATORS:
        ort = partial(ort_int8, calibrator=calibrator)
        peers.append(
            Contender(f"ort {calibrator.lower()}", partial(_open_peer, task, ort, ".onnx", open_ort))
        )
    peers.append(Contender("ort u8s8", partial(_open_peer, task, ort_int8_u8s8, ".onnx", open_ort)))
    if model_optimizer is not None:
        peers += [
            Contender(
                f"mo {method}",
                partial(
                    _open_peer,
                    task,
                    partial(model_optimizer_int8, python=model_optimizer, method=method),
                    ".onnx",
                    open_ort,
                ),
            )
            for method in MODEL_OPTIMIZER_METHODS
        ]
    return peers


def nncf_controlled(
    task: Task, source: Path, target: Path, calibration: list[Feed], *, limit_s: int | None = None
) -> None:
    """NNCF's accuracy control, which judges by the decisions, or the outputs, that FP32 makes of its samples.

    These are the samples for calibration: no tool sees what it is judged on.

    Args:
        limit_s: processor seconds that it may take.

    Raises:
        RuntimeError: it took longer.
    """
    floats = open_ort(source)
    validation = [(feed, list(floats.run(feed).values())) for feed in calibration]

    def hit(outputs: Outputs, wanted: Outputs) -> float:
        if task.decisions is not None:
            return float(np.mean(task.decisions(wanted, outputs)))
        noise, signal = np.square(outputs[0] - wanted[0]).sum(), np.square(wanted[0]).sum()
        return float(1.0 - noise / signal)

    with limited(limit_s):
        nncf_accuracy_control(
            source,
            target,
            calibration,
            validation,
            max_drop_ratio=CONTROLLED_DROP_RATIO,
            is_transformer=task.is_transformer,
            hit=hit,
        )


@contextmanager
def limited(limit_s: int | None) -> Iterator[None]:
    """Stop what runs after these processor seconds: others use the machine too, so a clock tells little."""

    def stop(*_: object) -> None:
        raise RuntimeError(f"not done after {limit_s} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _fastest_int8(engine: Engine) -> str:
    """The library of the faster int8 candidate of a build."""
    timed = [row for row in engine.report["candidates"] if row.get("precision") == "int8" and row["latency"]]
    return str(min(timed, key=lambda row: row["latency"]["median_ms"])["library"])


@contextmanager
def _open_int8(opener: Opener, library: str, fitted: Fitted) -> Iterator[Opened]:
    found = opener.open(Spec(library, "int8"), fitted)
    if isinstance(found, Rejected):
        raise RuntimeError(found.reason)
    try:
        yield Opened(found.executor.run, placed_products(fitted.model))
    finally:
        found.executor.close()


@contextmanager
def _open_peer(
    task: Task,
    quantize: Callable[[Path, Path, list[Feed]], None],
    suffix: str,
    open_file: Callable[[Path], Runner],
) -> Iterator[Opened]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"quantized{suffix}")
        quantize(task.path, path, task.calibration)
        runner = open_file(path)
        yield Opened(lambda inputs: runner.run(dict(inputs)), file_products(path, task.calibration[0]))
