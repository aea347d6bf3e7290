# SPDX-License-Identifier: Apache-2.0
"""What `Engine.run` adds to the library's own call: `python -m benchmarks.engine_overhead [-o FILE.json]`.

Both run the same model with the same options and inputs, in turns. ONNX Runtime's own call is
`InferenceSession.run`, OpenVINO's is `CompiledModel(inputs)` on the model reshaped to the input, as its
documentation shows them. The difference is the median over rounds of the difference within a round.
"""

__all__ = ["measure"]

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import openvino

from quantrt.config import BenchConfig
from quantrt.device import describe_device
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Fingerprint
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel, Plan
from quantrt.runtime.engine import Engine
from quantrt.tactics.timing import time_interleaved

DEMO_MODEL = Path(__file__).parents[1] / "demo" / "digits_resnet.onnx"
SEED = 0

TINY_MODEL = """
<ir_version: 10, opset_import: ["" : 17]>
tiny (float[N,16] x, float[N,16] z) => (float[N,16] sum, float[N,16] positive) {
  sum = Add(x, z)
  positive = Relu(sum)
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what Engine.run adds to the library's own call.")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write JSON here (default: stdout)")
    parser.add_argument("--duration", type=float, default=3.0, metavar="S", help="seconds per candidate")
    args = parser.parse_args()
    config = BenchConfig(duration_s=args.duration, max_duration_s=args.duration)
    models = {"tiny": ir.from_onnx_text(TINY_MODEL), "demo": ir.load(DEMO_MODEL)}
    rows = [
        measure(name, graph, library, config)
        for name, graph in models.items()
        for library in ("onnxruntime", "openvino")
    ]
    text = json.dumps({"device": describe_device(with_gpu=False), "rows": rows}, indent=1)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


def measure(name: str, graph: ir.Model, library: str, config: BenchConfig) -> dict[str, object]:
    """One row: medians in microseconds of both calls, and of their difference within rounds."""
    feed = _feed(graph)
    lower = {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}[library]
    own_call = {"onnxruntime": _onnxruntime_call, "openvino": _openvino_call}[library](graph, feed)
    with Engine(_plan(graph, lower(graph))) as engine:
        got, want = engine.run(feed), own_call()
        for key, array in got.items():
            np.testing.assert_array_equal(array, want[key])
        times = time_interleaved({"engine": lambda: engine.run(feed), "library": own_call}, config, seed=SEED)
    difference_us = 1e3 * (times["engine"].round_medians_ms() - times["library"].round_medians_ms())
    return {
        "model": name,
        "library": library,
        "engine_us": round(1e3 * times["engine"].median_ms, 2),
        "library_us": round(1e3 * times["library"].median_ms, 2),
        "added_us": round(float(np.median(difference_us)), 2),
        "runs": len(times["engine"].samples_ms),
    }


def _onnxruntime_call(graph: ir.Model, feed: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    session = onnxruntime.InferenceSession(
        ir.to_proto(graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, feed), strict=True))


def _openvino_call(graph: ir.Model, feed: dict[str, np.ndarray]) -> Callable[[], Mapping[str, np.ndarray]]:
    core = openvino.Core()
    model = core.read_model(ir.to_proto(graph).SerializeToString())
    model.reshape({key: list(array.shape) for key, array in feed.items()})
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(model, "CPU", config)
    return lambda: compiled(feed)


def _feed(graph: ir.Model) -> dict[str, np.ndarray]:
    """Standard normal float32 inputs, every dynamic dimension 1."""
    rng = np.random.default_rng(SEED)
    feed = {}
    for value in graph.graph.inputs:
        shape = [dim if isinstance(dim, int) else 1 for dim in value.shape]
        feed[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feed


def _plan(graph: ir.Model, model: LibraryModel) -> Plan:
    return Plan(
        model=model,
        options=ExecOptions(),
        inputs=tuple(_spec(value) for value in graph.graph.inputs),
        outputs=tuple(_spec(value) for value in graph.graph.outputs),
        precision="fp32",
        layers=(),
        fingerprint=Fingerprint("0", "0"),
        device=describe_device(with_gpu=False),
    )


def _spec(value: ir.Value) -> TensorSpec:
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    return TensorSpec(value.name, "float32", dims)


if __name__ == "__main__":
    main()
