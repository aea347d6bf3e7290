# SPDX-License-Identifier: Apache-2.0
"""Trained models with caches as TensorRT's MinMax calibrator would make them: of every tensor of the file.

Floors are some 3 dB under what was measured with ONNX Runtime 1.31.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from quantrt.calibrate.caches.trt_cache import TrtCache, cache_text, parse_cache, read_cache
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.quantize.cache_match import match_cache
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.reference.metrics import sqnr_db
from tests.nets import ort_kernels, run_ort

BATCH = 2

FLOORS_DB = {
    "cifar10_mobilenetv3_small": 16,
    "cifar10_resnet8": 20,
    "cifar10_vit_tiny_d9": 29,
    "ultraface_rfb320": 21,
}


def normal_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {spec.name: [d if isinstance(d, int) else BATCH for d in spec.shape] for spec in model.inputs}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def minmax_cache(path: Path, inputs: Mapping[str, np.ndarray]) -> TrtCache:
    """The largest magnitude of every float tensor of an ONNX file as it is, over 127."""
    proto = onnx.load(path)
    made = [name for node in proto.graph.node for name in node.output if name]
    present = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in present)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    arrays = {**inputs, **dict(zip(names, session.run(names, dict(inputs)), strict=True))}
    amax = {name: float(np.abs(array).max()) for name, array in arrays.items() if array.dtype == np.float32}
    scales = {name: float(np.float32(value / 127)) for name, value in amax.items() if value > 0}
    return parse_cache(cache_text(scales, "TRT-8601-MinMaxCalibration").encode(), "minmax.cache")


@pytest.mark.parametrize("name", FLOORS_DB)
def test_a_cache_of_the_file_s_tensors_gives_every_range(name: str, shared_data, rng):
    path = shared_data(f"models/{name}.onnx")
    model = load_model(path)
    inputs = normal_inputs(model, rng)
    cache = minmax_cache(path, inputs)
    match = match_cache(model, cache, (*TARGETS, CUDA))
    assert match.missing == {} and match.others == {}
    assert match_cache(for_gpu(model), cache, (CUDA,)).missing == {}
    reasons = {reason.split(":")[0] for reason in match.unknown.values()}
    assert reasons <= {"folded into the node behind it", "a constant"}
    wanted = run_ort(model.graph, inputs)
    for target in (ORT, OPENVINO):
        made = quantize(model, None, target, QuantizeConfig(), CalibrationConfig(), given=match.given)
        got = run_ort(write(made), inputs)
        assert min(sqnr_db(one, other) for one, other in zip(wanted, got, strict=True)) > FLOORS_DB[name]


def test_convolutions_run_in_integer_kernels_on_the_scales_of_a_cache(shared_data, rng):
    path = shared_data("models/cifar10_resnet20.onnx")
    model = load_model(path)
    given = match_cache(model, minmax_cache(path, normal_inputs(model, rng)), (ORT,)).given
    graph = write(quantize(model, None, ORT, QuantizeConfig(), CalibrationConfig(), given=given))
    kernels = ort_kernels(graph)
    convolutions = sum(node.op_type == "Conv" for node in model.graph.graph)
    assert kernels["QLinearConv"] == convolutions and kernels["Conv"] == kernels["FusedConv"] == 0


def test_real_caches_of_other_models_are_errors_that_name_tensors(shared_data):
    model = load_model(shared_data("models/cifar10_resnet20.onnx"))
    for path in sorted(shared_data("trt_caches").glob("*.cache")):
        cache = read_cache(path)
        with pytest.raises(DataError) as caught:
            match_cache(model, cache, TARGETS)
        assert "another graph" in caught.value.message or "no scale of" in caught.value.message
        assert "'" in (caught.value.got or "")
