# SPDX-License-Identifier: Apache-2.0
"""The peers QuantRT is measured against: ONNX Runtime and OpenVINO, float and quantized by their own tools.

A peer is made in two steps: `ort_int8`, `ort_int8_u8s8`, `nncf_int8` or `nncf_accuracy_control` quantizes an
ONNX file into a file of the peer's format; `open_ort` or `open_openvino` loads a file, float or quantized,
for the lowest latency of one request at a time on all cores.
"""

__all__ = [
    "CONTROLLING",
    "VALIDATING",
    "Calibrator",
    "Runner",
    "is_class",
    "nncf_accuracy_control",
    "nncf_int8",
    "open_openvino",
    "open_ort",
    "ort_int8",
    "ort_int8_u8s8",
]

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.tasks.inputs import Feed

Precision = Literal["f32", "bf16"]
Calibrator = Literal["MinMax", "Entropy", "Percentile"]
"""ONNX Runtime's; its fourth, Distribution, is for FP8 alone."""

VALIDATING, CONTROLLING = "validating", "compiling, ranking, restoring"
"""Stages of accuracy control behind quantizing: a model on all samples, and everything between."""


@dataclass(frozen=True)
class Runner:
    """A loaded peer. `run` maps inputs by name to outputs by name; `config` is what the library reports."""

    run: Callable[[Feed], dict[str, npt.NDArray[np.generic]]]
    config: dict[str, str]


def ort_int8(
    source: Path, target: Path, calibration: Sequence[Feed], *, calibrator: Calibrator = "MinMax"
) -> None:
    """quantize_static with its defaults: Q/DQ, int8 activations and weights, per tensor, min-max ranges."""
    from onnxruntime.quantization import CalibrationMethod, quantize_static

    method = CalibrationMethod[calibrator]
    quantize_static(source, target, _feed_reader(calibration), calibrate_method=method)


def ort_int8_u8s8(source: Path, target: Path, calibration: Sequence[Feed]) -> None:
    """quantize_static as its documentation advises for x86: preprocessed, uint8 activations, per channel."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder, source.name)
        # Its symbolic shape inference gives up on models that compute shapes; ONNX's own stays on.
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            _feed_reader(calibration),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )


def nncf_int8(
    source: Path,
    target: Path,
    calibration: Sequence[Feed],
    *,
    is_transformer: bool = False,
    is_converted: bool = True,
) -> None:
    """nncf.quantize with its defaults on the OpenVINO model, written as OpenVINO IR (`target` ends in .xml).

    Args:
        is_transformer: pass model_type=TRANSFORMER, which NNCF asks for on attention models: it leaves more
            operations float and smooths activation outliers.
        is_converted: import with `openvino.convert_model`; otherwise with `Core.read_model`, whose graph
            NNCF quantizes elsewhere.
    """
    import nncf
    import openvino

    # convert_model folds constants; as read_model leaves them, depthwise weights stay behind a Reshape, which
    # NNCF quantizes along the kernel's width and OpenVINO then runs in float.
    quantized = nncf.quantize(
        openvino.convert_model(source) if is_converted else openvino.Core().read_model(source),
        nncf.Dataset(list(calibration)),
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)


def is_class(outputs: Sequence[npt.NDArray[Any]], label: int) -> float:
    """Whether the largest logit of the first output is that of a class."""
    return float(np.argmax(outputs[0]) == label)


def nncf_accuracy_control(
    source: Path,
    target: Path,
    calibration: Sequence[Feed],
    validation: Sequence[tuple[Feed, Any]],
    *,
    max_drop_ratio: float,
    is_transformer: bool = False,
    hit: Callable[[list[npt.NDArray[Any]], Any], float] = is_class,
    score: Callable[[list[list[npt.NDArray[Any]]]], float] | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> None:
    """nncf.quantize_with_accuracy_control with its defaults: layers go back to floats until a budget is kept.

    Args:
        target: ends in .xml.
        validation: single samples with what they are judged by: their classes, for top-1.
        max_drop_ratio: of the mean of `hit`, relative to that of the float model.
        hit: (outputs, what a sample is judged by) -> how right they are.
        score: of the outputs for all samples, where it is no mean of hits.
        on_stage: called with VALIDATING and CONTROLLING as these begin.
    """
    import nncf
    import openvino

    def validate(model: Any, items: Iterable[tuple[Feed, Any]]) -> tuple[float, list[float] | None]:
        on_stage(VALIDATING)
        if score is not None:
            figure, hits = score([list(model(feed).values()) for feed, _ in items]), None
        else:
            hits = [hit(list(model(feed).values()), wanted) for feed, wanted in items]
            figure = float(np.mean(hits))
        on_stage(CONTROLLING)
        return figure, hits

    quantized = nncf.quantize_with_accuracy_control(
        openvino.convert_model(source),
        nncf.Dataset(list(calibration)),
        nncf.Dataset(list(validation), lambda item: item[0]),
        validate,
        max_drop=max_drop_ratio,
        drop_type=nncf.DropType.RELATIVE,
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)


def open_ort(path: Path) -> Runner:
    """ONNX Runtime on the CPU, all graph optimizations, one intra-op thread per core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _num_cores()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feed: Feed) -> dict[str, npt.NDArray[np.generic]]:
        return dict(zip(names, session.run(names, feed), strict=True))

    return Runner(run, {"intra_op_num_threads": str(options.intra_op_num_threads)})


def open_openvino(
    path: Path, precision: Precision | None, *, shapes: dict[str, tuple[int, ...]] | None = None
) -> Runner:
    """OpenVINO on the CPU with the latency hint, one stream, one thread per core.

    Args:
        precision: type of the operations that are not quantized. None lets OpenVINO choose, which on a CPU
            with AVX512-BF16 or AMX may be bf16.
        shapes: reshape to these static shapes, by input name; None keeps dynamic dimensions.
    """
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    if shapes is not None:
        model.reshape(shapes)
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": _num_cores(),
    }
    if precision is not None:
        config["INFERENCE_PRECISION_HINT"] = precision
    compiled = core.compile_model(model, "CPU", config)
    request = compiled.create_infer_request()
    # By the model's names: compiling may add those of tensors it merged with an output.
    names = [output.get_any_name() for output in model.outputs]

    def run(feed: Feed) -> dict[str, npt.NDArray[np.generic]]:
        results = request.infer(feed, share_inputs=True)
        return {name: results[index] for index, name in enumerate(names)}

    reported = (*config, "INFERENCE_PRECISION_HINT")
    return Runner(run, {key: str(compiled.get_property(key)) for key in reported})


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _feed_reader(calibration: Sequence[Feed]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class FeedReader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.feeds = iter(calibration)

        def get_next(self) -> Feed | None:
            return next(self.feeds, None)

    return FeedReader()
