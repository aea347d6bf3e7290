# SPDX-License-Identifier: Apache-2.0
"""The pipeline for a GPU that is not here: the stages of `quantrt.build`, without a device to time on.

load -> calibrate -> fit -> lower by timing cache and estimates -> check on the CPU -> plan

The guard of a build rests on timings, so it cannot hold here: what is asked for is shipped when it is inside
the accuracy budget, and the plan says that it was not timed. Accuracy is that of the reference program, which
has the codes of the GPU's kernels, and floats that differ from theirs in rounding.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.assign.choose import choose_untimed
from quantrt.build import OnEvent, constrained, make_plan
from quantrt.calibrate.caches.trt_cache import TrtCache
from quantrt.calibrate.stats import Stats
from quantrt.checks import make_checker
from quantrt.config import BuildConfig, CudaConfig
from quantrt.device import describe_device
from quantrt.errors import DeviceError, UsageError
from quantrt.gpu import GpuFacts, gpu_named, gpu_of_target
from quantrt.model.load import Source
from quantrt.plan.plan import ExecOptions, LibraryModel, Plan
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.prepare import Job
from quantrt.quantize.explicit.read import target_of_own
from quantrt.quantize.fit.fit import Fitted, keeps_scales
from quantrt.quantized_job import Data, QuantizedJob, quantized_job
from quantrt.report.built.facts import BuildFacts
from quantrt.tactics.candidates import Candidate, Rejected, Spec, list_specs

if TYPE_CHECKING:
    from quantrt.tactics.cuda.lower import CudaLowering

__all__ = ["cross_build", "planned_gpu"]

ON_THE_CPU = "with the reference kernels on the CPU"


def cross_build(
    model: Source,
    *,
    config: BuildConfig,
    calibration: Data | None = None,
    validation: Data | None = None,
    stats: Stats | None = None,
    calibration_cache: TrtCache | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> Plan:
    """Plan an engine for GPUs that are not here; `quantrt.plan.serialize.save_plan` writes it.

    Args:
        config: of a build for "cuda", with `cuda.targets` or `cuda.gpu`.
        calibration, validation, stats, calibration_cache, on_event: as in `quantrt.build`.

    Raises:
        UsageError: no target is given; int8 or fp8 without calibration data.
        ModelError, DataError: the model or the data cannot be used.
        DeviceError: torch or Triton, which compile the kernels, are not installed.
    """
    gpu = planned_gpu(config.cuda)
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            raise DeviceError(
                f"cannot compile kernels: the package '{package}' is not installed here",
                hint="`pip install 'quantrt[cuda]'`",
            )
    here = {**describe_device(with_gpu=False), "gpu": None, "planned_for": _row(gpu)}
    ready = quantized_job(
        model,
        config,
        here,
        calibration=calibration,
        validation=validation,
        stats=stats,
        calibration_cache=calibration_cache,
        on_event=on_event,
    )
    return make_plan(constrained(_decide(ready, gpu), ready.constraints))


def planned_gpu(config: CudaConfig) -> GpuFacts:
    """The GPU that kernels are chosen for: the one named, or the first row of the first target.

    Raises:
        UsageError: neither is given, there is no such GPU, or it is none of the targets.
    """
    if config.gpu is None and not config.targets:
        raise UsageError(
            "cannot build for a GPU that is not here without knowing which",
            expected="a target such as sm_90, or a GPU such as H200",
            hint="--target sm_90",
        )
    gpu = gpu_named(config.gpu) if config.gpu is not None else gpu_of_target(config.targets[0])
    if config.targets and f"sm_{gpu.capability}" not in config.targets:
        raise UsageError(
            f"the GPU {gpu.name} is none of the targets",
            got=", ".join(config.targets),
            expected=f"sm_{gpu.capability} among them",
            hint=f"--target sm_{gpu.capability}",
        )
    return gpu


def _decide(ready: QuantizedJob, gpu: GpuFacts) -> BuildFacts:
    """Check every precision by its reference, and lower the one that is shipped."""
    from quantrt.tactics.cuda.lower import CudaLowering  # torch is optional

    job, quantized, config = ready.job, ready.quantized, ready.job.config
    make = partial(CudaLowering, config=config.cuda, inputs=ready.timed_inputs, gpu=gpu, device=None)
    given = make(job.model, on_progress=job.on_kernels)
    own = given
    if keeps_scales(job.model, config) and quantized.fits:  # FP32 is the model as given
        fitted = quantized.fits["cuda", target_of_own(job.model).precision]
        own = make(replace(job.model, graph=fitted.model.graph), on_progress=job.on_kernels)
    lowerings = {"fp32": given}
    if quantized.weight_only is not None:
        graph = quantized.weight_only.graph
        lowerings["int4"] = make(replace(job.model, graph=graph), on_progress=job.on_kernels)
    with ExitStack() as stack:
        candidates, rejected = _open_references(
            job, lambda spec: lowerings.get(spec.precision, own), quantized.fits, stack
        )
        check = make_checker(candidates, ready.metric, ready.checked, job, stack)
        choice = choose_untimed([*reversed(candidates)], check, config.budget.max_drop_ratio)
    winner = candidates[choice.winner]
    shipped = None if winner.fitted is None else winner.fitted.model
    with closing(lowerings.get(winner.spec.precision, own)) as lowering:
        lowered, _ = lowering.lower(shipped, winner.spec.float_precision)
    candidates[choice.winner] = replace(winner, model=lowered)
    facts = ready.facts(candidates, rejected, choice)
    return replace(
        facts,
        checked_on=facts.checked_on if ready.checked.data is None else f"{facts.checked_on}, {ON_THE_CPU}",
        notes=(*facts.notes, _untimed_note(gpu, lowered)),
    )


def _open_references(
    job: Job,
    lowering_of: Callable[[Spec], CudaLowering],
    fits: Mapping[tuple[str, str], Fitted],
    stack: ExitStack,
) -> tuple[dict[str, Candidate], tuple[Rejected, ...]]:
    """Every precision as its reference program, open on the CPU until the stack closes; FP32 first.

    Args:
        lowering_of: of the graph that a precision runs.
    """
    from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # torch is optional

    found: dict[str, Candidate] = {}
    rejected: list[Rejected] = []
    for spec in list_specs(job.config, job.device):
        own = fits.get((spec.library, spec.precision))
        if spec.has_codes and (own is None or not own.model.has_int8):
            rejected.append(Rejected(spec, "no node of the model can be quantized for it"))
            continue
        try:
            program = lowering_of(spec).reference(None if own is None else own.model, spec.float_precision)
        except DeviceError as error:
            rejected.append(Rejected(spec, error.message))
            continue
        executor = CudaExecutor(program, *specs_of(program), device="cpu")
        stack.callback(executor.close)
        options = ExecOptions(float_precision=spec.float_precision)
        found[spec.name] = Candidate(spec, program_to_model(program), options, executor, own)
    return found, tuple(rejected)


def _untimed_note(gpu: GpuFacts, lowered: LibraryModel) -> str:
    """That nothing was timed here, and what choices rest on."""
    rows = program_from_model(lowered).notes["regions"].values()
    origins = Counter(str(row["origin"]) for row in rows if row["origin"] is not None)
    counts = " and ".join(f"{count} {origin}" for origin, count in sorted(origins.items()))
    return (
        f"not timed on the device: kernels were chosen for {gpu.name} (sm_{gpu.capability}), which is not "
        f"here, by region: {counts}"
    )


def _row(gpu: GpuFacts) -> dict[str, Any]:
    """The GPU as a row of "gpu" in `quantrt.device.describe_device`."""
    capability = f"{gpu.capability // 10}.{gpu.capability % 10}"
    return {"name": gpu.name, "memory_bytes": gpu.memory_bytes, "compute_capability": capability}
