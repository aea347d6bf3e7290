# SPDX-License-Identifier: Apache-2.0
"""Plans of a small residual network in int8, one layer of it float, for the libraries and for a GPU."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from quantrt.config import TACTIC_SOURCES, CudaConfig
from quantrt.gpu import gpu_named
from quantrt.ir.sources import sources_of
from quantrt.plan.plan import ExecOptions, Layer, LibraryModel, Plan
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import quantized, resnet, samples
from tests.plans import lower

IMAGES = {"x": samples(2, 3, 16, 16)}
TARGETS = {"onnxruntime": ORT, "openvino": OPENVINO, "cuda": CUDA}
LIBRARIES_ONLY = CudaConfig(
    exclude_tactic_sources=tuple(source for source in TACTIC_SOURCES if source != "torch"),
    builder_optimization_level=0,
)


def int8_plan(library: str) -> Plan:
    """Of ONNX Runtime or OpenVINO."""
    codes = quantized(resnet(), TARGETS[library], IMAGES)
    return plan_of(codes, lower(write(codes), library), "fp32")


def cuda_plan_of(gpu: str, *, device: str | None = "cpu") -> Plan:
    """For a GPU, chosen on the CPU, which stands in for it; device None chooses by estimates."""
    from quantrt.tactics.cuda.lower import CudaLowering  # torch is optional

    codes = quantized(resnet(), CUDA, IMAGES)
    made = CudaLowering(codes.model, LIBRARIES_ONLY, IMAGES, gpu=gpu_named(gpu), device=device)
    with closing(made) as lowering:
        lowering.lower(None, "fp16")
        model, kept = lowering.lower(codes, "fp16")
    return plan_of(kept or codes, model, "fp16", device={"gpu": [{"name": gpu_named(gpu).name}]})


def plan_of(codes: QuantizedModel, model: LibraryModel, float_precision: str, **fields: Any) -> Plan:
    """A plan as a build makes it, without its report."""
    decisions = {row.node: row for row in codes.placement.decisions}
    layers = tuple(
        Layer(
            name=node.name or "",
            op_type=node.op_type,
            precision="int8" if decisions[node.name or ""].is_int8 else float_precision,
            reason=decisions[node.name or ""].reason,
            sources=sources_of(node),
        )
        for node in codes.model.graph.graph
    )
    values: Mapping[str, Any] = {
        "model": model,
        "options": ExecOptions(threads=1, float_precision=float_precision),
        "inputs": codes.model.inputs,
        "outputs": codes.model.outputs,
        "precision": "int8",
        "layers": layers,
        "fingerprint": codes.model.fingerprint,
        "device": {},
    }
    return Plan(**{**values, **fields})
