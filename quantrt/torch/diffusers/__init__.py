# SPDX-License-Identifier: Apache-2.0
"""Diffusion pipelines with engines in them.

    quantize_pipeline(pipe, prompts=..., steps=...)    calibrate, build, and put the engines in the pipeline

    calls.py       how a pipeline calls a module, as named tensors
    parts.py       the modules of a pipeline that may become engines
    record.py      what a module is called with while the pipeline runs, on disk
    export.py      a module as ONNX, for the calls that were recorded
    engine_module.py   an engine in the place of a module
    latency.py     the time of each module in a run of the pipeline
    pipeline.py    all of it in order

Pipelines are those of Hugging Face's diffusers, or what looks like them: nothing here imports diffusers.
"""

from __future__ import annotations

from quantrt.torch.diffusers.pipeline import quantize_pipeline
from quantrt.torch.diffusers.result import PipelineReport

__all__ = ["PipelineReport", "quantize_pipeline"]
