# SPDX-License-Identifier: Apache-2.0
"""What an engine consists of, layer by layer, whichever library runs it."""

from __future__ import annotations

from collections.abc import Mapping

from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import CHANNELS_LAST, ROW_MAJOR, EngineLayer, Rival, TensorForm
from quantrt.runtime.engine import Engine
from quantrt.runtime.executor import check_library

__all__ = ["CHANNELS_LAST", "ROW_MAJOR", "EngineLayer", "Rival", "TensorForm", "engine_layers"]


def engine_layers(
    engine: Engine | Plan, *, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[EngineLayer, ...]:
    """The layers of an engine, in the order in which they run.

    An engine for a GPU is described from its file; no GPU, torch or Triton is needed. One for a CPU is
    described as its library compiles it on this machine.

    Args:
        shapes: of the inputs. None: of an engine for a GPU those at which it was timed; on a CPU a free batch
            is 1, and sizes that follow from other free sizes are not known.

    Raises:
        DeviceError: the library of an engine for a CPU is not installed.
        DataError: the model cannot have these shapes.
        ModelError: the engine holds no program that can be read.
    """
    plan = engine.plan if isinstance(engine, Engine) else engine
    if plan.model.library == "cuda":
        from quantrt.report.engine_layers.cuda import cuda_layers
        from quantrt.report.engine_layers.cuda_sizes import layers_at

        layers = cuda_layers(plan)
        return layers if shapes is None else layers_at(layers, shapes)
    check_library(plan.model.library)
    if plan.model.library == "openvino":
        from quantrt.report.engine_layers.openvino import openvino_layers  # openvino is optional

        return openvino_layers(plan, shapes)
    from quantrt.report.engine_layers.onnxruntime import onnxruntime_layers  # onnxruntime is optional

    return onnxruntime_layers(plan, shapes)
