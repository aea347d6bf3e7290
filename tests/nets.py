# SPDX-License-Identifier: Apache-2.0
"""Small networks for tests, made from ONNX text: quantized for a target, and run where it counts."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.clone import clone
from quantrt.ir.ort_options import KEEP_PAIRS
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.fit.fit import observe_reference
from quantrt.quantize.quantize import observed_values, quantize
from quantrt.quantize.quantized_model import Placement, QuantizedModel
from quantrt.quantize.target import Target
from quantrt.runtime.executor import open_executor

Arrays = Mapping[str, np.ndarray]

CONV = "net (float[N,3,8,8] x) => (float[N,8,8,8] y) { y = Conv<pads=[1,1,1,1]>(x, w, b) }"

RESNET = """net (float[N,3,16,16] x) => (float[N,5] y) {
  c0 = Conv<pads=[1,1,1,1]>(x, w0, b0)
  r0 = Relu(c0)
  c1 = Conv<pads=[1,1,1,1]>(r0, w1, b1)
  r1 = Relu(c1)
  c2 = Conv<pads=[1,1,1,1]>(r1, w2, b2)
  sum = Add(c2, r0)
  r2 = Relu(sum)
  pool = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r2)
  c3 = Conv<pads=[1,1,1,1]>(pool, w3, b3)
  r3 = Relu(c3)
  mean = GlobalAveragePool(r3)
  flat = Flatten(mean)
  y = Gemm<transB=1>(flat, w4, b4)
}"""

RESNET_SHAPES = {
    "w0": (8, 3, 3, 3),
    "b0": (8,),
    "w1": (8, 8, 3, 3),
    "b1": (8,),
    "w2": (8, 8, 3, 3),
    "b2": (8,),
    "w3": (16, 8, 3, 3),
    "b3": (16,),
    "w4": (5, 16),
    "b4": (5,),
}


def weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Normal float32 arrays, scaled so that activations keep their size from layer to layer."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32)
        for name, shape in shapes.items()
    }


def samples(*shape: int, seed: int = 1) -> np.ndarray:
    """Normal float32 inputs."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def net(text: str, arrays: Arrays | None = None, *, opset: int = 17) -> Model:
    """The Model of an ONNX text, with initializers by name; a node is called after its operator and place."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    for name, array in (arrays or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    name_nodes(proto.graph)
    return make_model(ir.from_proto(proto))


def resnet(seed: int = 0) -> Model:
    """A residual network with a pool and a classifier; input x [N, 3, 16, 16], output y [N, 5]."""
    return net(RESNET, weights(RESNET_SHAPES, seed))


def dataset(model: Model, inputs: Arrays) -> Dataset:
    return open_dataset(inputs, model.inputs)


def observe(model: Model, targets: tuple[Target, ...], inputs: Arrays, **options: object) -> Stats:
    """One calibration for all `targets`."""
    names = observed_values(model, targets, QuantizeConfig(**options))
    return collect(model, names, dataset(model, inputs), CalibrationConfig())


def quantized(
    model: Model, target: Target, inputs: Arrays, *, method: str = "auto", **options: object
) -> QuantizedModel:
    """`model` calibrated on `inputs` and quantized; `options` are those of QuantizeConfig."""
    config = QuantizeConfig(**options)
    reference = observe_reference(model, [inputs], config)
    stats = observe(model, (target,), inputs, **options)
    return quantize(model, stats, target, config, CalibrationConfig(method=method), means=reference.means)


def run_ort(graph: ir.Model, inputs: Arrays, *, keeps_pairs: bool = False) -> list[np.ndarray]:
    """All outputs, in the graph's order.

    Args:
        keeps_pairs: compute floats between the pairs, as written: kernels of integers in their place round
            means otherwise, and quantize what products read once more.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if keeps_pairs or any(v.dtype == ir.DataType.FLOAT8E4M3FN for v in graph.graph.initializers.values()):
        options.add_session_config_entry(*KEEP_PAIRS)
    onnx.checker.check_model(ir.to_proto(graph))
    session = onnxruntime.InferenceSession(
        ir.to_proto(graph).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))


def run_openvino(graph: ir.Model, inputs: Arrays) -> list[np.ndarray]:
    """All outputs, in the graph's order."""
    names = [value.name for value in graph.graph.outputs]
    executor = open_executor(lower_to_openvino(graph), ExecOptions(), output_names=names)
    try:
        outputs = executor.run(inputs)
    finally:
        executor.close()
    return [outputs[name] for name in names]


def ort_kernels(graph: ir.Model) -> Counter[str]:
    """Operators that ONNX Runtime really runs, after its own fusions."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            ir.to_proto(graph).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return Counter(node.op_type for node in onnx.load(path).graph.node)


def openvino_kernels(graph: ir.Model, shape: tuple[int, ...]) -> Counter[tuple[str, str]]:
    """(operator, precision) of each kernel that OpenVINO really runs for one input of this shape."""
    import openvino

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(ir.to_proto(graph), path)
        core = openvino.Core()
        model = core.read_model(path)
        model.reshape(list(shape))
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        info = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
        return Counter((row["layerType"].astype(str), row["runtimePrecision"].astype(str)) for row in info)


def edited(edit: Callable[[ir.Model], object], graph: ir.Model) -> ir.Model:
    """A copy of a graph, edited in place."""
    copy = clone(graph)
    edit(copy)
    return copy


def leaves_alone(edit: Callable[[ir.Model], object], graph: ir.Model) -> bool:
    """Whether an edit changes nothing."""
    return ir.to_proto(edited(edit, graph)) == ir.to_proto(graph)


def nodes(graph: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in graph.graph if node.op_type == op_type]


def constant(value: ir.Value) -> np.ndarray:
    """The array of an initializer."""
    assert value.const_value is not None, f"{value.name} is no constant"
    return value.const_value.numpy()


def int8_nodes(placement: Placement) -> set[str]:
    return {decision.node for decision in placement.decisions if decision.is_int8}


def reason(placement: Placement, node: str) -> str:
    return next(decision.reason for decision in placement.decisions if decision.node == node)
