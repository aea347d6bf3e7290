# SPDX-License-Identifier: Apache-2.0
"""Quantization-aware training: a torch module, with fake quantization where an engine will quantize.

    prepare(model, example_inputs, calibration, target="ort") -> PreparedModel, an nn.Module to be trained
    convert(prepared) -> the ONNX Q/DQ model, whose codes are those of the prepared module's forward
    distillation_loss(outputs, float_outputs) -> a loss that needs no labels

Which edges are quantized is decided by the same placement as everywhere (quantize/placement/): the module
is exported, the exported graph is placed, and each quantized edge is found again in the traced module. There
training starts at what quantization after training (quantize/fit/) makes of that graph.
"""

from __future__ import annotations

from quantrt.torch.qat.convert import convert
from quantrt.torch.qat.distill import distillation_loss
from quantrt.torch.qat.prepare import prepare
from quantrt.torch.qat.prepared import PreparedModel

__all__ = ["PreparedModel", "convert", "distillation_loss", "prepare"]
