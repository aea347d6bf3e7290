# SPDX-License-Identifier: Apache-2.0
"""A model as regions in a frame, with the facts of its buffers: what tactics are listed for."""

from collections.abc import Mapping

import numpy as np
import torch

from quantrt.config import CudaConfig
from quantrt.gpu import GpuFacts
from quantrt.model.model import Model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.regions.partition import partition
from quantrt.regions.region import Regions
from quantrt.tactics.cuda.forms.forms import choose_forms
from quantrt.tactics.cuda.lower import CudaLowering, _by_reference
from quantrt.tactics.cuda.program.frame import Frame, make_frame
from quantrt.tactics.cuda.program.trace import trace
from quantrt.tactics.cuda.tactic import TensorFacts
from tests.nets import quantized

__all__ = ["framed_as"]


def framed_as(
    precision: str, model: Model, inputs: Mapping[str, np.ndarray], gpu: GpuFacts
) -> tuple[Frame, dict[str, TensorFacts], Regions]:
    """In int8 beside fp16, by ranges of these inputs; or in floats."""
    if precision == "int8":
        codes = quantized(model, CUDA, inputs)
        regions = partition(codes.graph)
        forms = choose_forms(codes.graph.graph, regions, codes)
        frame = make_frame(codes.graph, regions, forms, codes, "float16")
    else:
        low = CudaLowering(model, CudaConfig(), inputs, gpu=gpu, device="cpu")
        frame, regions = low._framed(None, precision)
        low.close()
    return frame, trace(_by_reference(frame), inputs, torch.device("cpu")).facts, regions
