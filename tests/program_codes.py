# SPDX-License-Identifier: Apache-2.0
"""Integer regions of a program for GPUs, run by the references of its steps on a CPU, against exact sums."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CompareConfig, CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program import type_of_codes
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.report.codes.compare_codes import RegionCodes, add_samples, code_regions
from quantrt.report.codes.find import CodeRegion
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering

OPSET = 17


def compare_program(
    model: Model, quantized: QuantizedModel, inputs: Mapping[str, np.ndarray]
) -> list[RegionCodes]:
    """What was found of each region that makes codes of codes."""
    config = CudaConfig(builder_optimization_level=0)
    with closing(CudaLowering(model, config, inputs, gpu=gpu_named("H200"), device="cpu")) as lowering:
        program = lowering.reference(quantized, "fp16")
    shown = {name: step.runner for step in program.steps if not step.is_host for name in step.outputs if name}
    found = [each for each in code_regions(write(quantized), "cuda", shown) if isinstance(each, CodeRegion)]
    rows = [RegionCodes(region) for region in found]
    names = dict.fromkeys(
        name
        for row in rows
        for name in (row.region.output, *row.region.codes.values(), *row.region.floats.values())
        if name not in inputs
    )
    outputs = tuple((name, name, type_of_codes(name) or "float32") for name in names)
    tapped = replace(program, outputs=outputs)
    with closing(CudaExecutor(tapped, *specs_of(tapped), device="cpu")) as executor:
        dataset = open_dataset(inputs, model.inputs)
        add_samples(rows, executor.run, dataset, CompareConfig(), opset=OPSET, library="cuda")
    return rows
