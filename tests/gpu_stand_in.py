# SPDX-License-Identifier: Apache-2.0
"""The CPU in the part of an H200: every region of a program is computed by the reference, in torch."""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

from quantrt.config import BenchConfig, CudaConfig
from quantrt.device import describe_device
from quantrt.gpu import gpu_named
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_from_model
from quantrt.runtime import executor as executor_module
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda import lower
from tests.programs import GPU

__all__ = ["BRIEF", "REFERENCE_ALONE", "programs_on_cpu", "stand_in_for_gpu"]

BRIEF = BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3)

REFERENCE_ALONE = CudaConfig(
    builder_optimization_level=0, exclude_tactic_sources=("triton", "cublaslt", "cudnn", "torch")
)
"""What the CPU can run; what torch can runs there too, but dequantizes in Triton's interpreter."""


@contextmanager
def stand_in_for_gpu() -> Iterator[None]:
    """Builds for a GPU run on the CPU meanwhile."""
    build_module = importlib.import_module("quantrt.build")
    here = {**describe_device(with_gpu=False), "gpu": [GPU]}
    lowering = partial(lower.CudaLowering, gpu=gpu_named("H200"), device="cpu")
    with ExitStack() as stack:
        stack.enter_context(patch.object(lower, "CudaLowering", lowering))
        stack.enter_context(programs_on_cpu())
        stack.enter_context(patch.object(build_module, "check_library", lambda library, **options: None))
        stack.enter_context(patch.object(build_module, "describe_machine", lambda library: here))
        yield


@contextmanager
def programs_on_cpu() -> Iterator[None]:
    """Programs that are opened meanwhile run on the CPU."""
    with (
        patch.object(executor_module, "_open_cuda", _open_on_cpu),
        patch.object(executor_module, "check_library", lambda library, **options: None),
    ):
        yield


def _open_on_cpu(model: LibraryModel, output_names: object) -> CudaExecutor:
    program = program_from_model(model)
    return CudaExecutor(program, *specs_of(program), device="cpu")
