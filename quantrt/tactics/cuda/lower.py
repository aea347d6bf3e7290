# SPDX-License-Identifier: Apache-2.0
"""A graph and its quantized edges -> the program of a GPU, every region by the tactic that is fastest there.

partition -> forms -> frame -> trace (shapes, by the reference) -> in place -> workloads -> tune -> assemble
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from quantrt.config import CudaConfig
from quantrt.errors import DataError, DeviceError
from quantrt.gpu import FP8_CAPABILITY, GpuFacts
from quantrt.ir.collector import without_collector
from quantrt.ir.profile import Profile, at_shapes, profile_rows, read_profiles
from quantrt.kernels.compile_all import CompileFailure, compile_all, compilers
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.model.model import Model
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import QUANTIZATION, Program
from quantrt.plan.program_json import program_to_model
from quantrt.quantize.qdq.per_token import spell_per_token
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.record import record_of
from quantrt.regions.partition import partition
from quantrt.regions.region import Mismatch, Regions
from quantrt.runtime.cuda.device.local_gpu import describe_gpu
from quantrt.runtime.cuda.device.memory_limit import enough_memory
from quantrt.runtime.profile_check import PROFILES
from quantrt.tactics.cuda.candidates import reference_tactic
from quantrt.tactics.cuda.convolutions.cudnn_plans import PlanMaker, plan_maker
from quantrt.tactics.cuda.fold.conversion import fold_conversions
from quantrt.tactics.cuda.fold.in_place import join_in_place
from quantrt.tactics.cuda.fold.pairs import take_pairs
from quantrt.tactics.cuda.fold.pools import find_pooled
from quantrt.tactics.cuda.fold.resizes import find_resized
from quantrt.tactics.cuda.forms.forms import Forms, choose_forms
from quantrt.tactics.cuda.listing import Listing
from quantrt.tactics.cuda.padding.masks import reasons_against
from quantrt.tactics.cuda.padding.remove_padding import remove_padding, told_padding
from quantrt.tactics.cuda.program.assemble import assemble
from quantrt.tactics.cuda.program.frame import Frame, make_frame
from quantrt.tactics.cuda.program.profiles import regions_that_fail
from quantrt.tactics.cuda.program.trace import trace_facts
from quantrt.tactics.cuda.program.wide import Wide, told_wide
from quantrt.tactics.cuda.program.wide_values import KeptWide, WideValues
from quantrt.tactics.cuda.program_notes import program_notes
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts
from quantrt.tactics.cuda.timing.environment import timing_environment
from quantrt.tactics.cuda.tuning.build_caches import BuildCaches
from quantrt.tactics.cuda.tuning.choices import Choices
from quantrt.tactics.cuda.tuning.slower_products import leave_float, slower_products
from quantrt.tactics.cuda.tuning.targets import capability_of
from quantrt.tactics.cuda.tuning.tune import TuneOptions, tune

__all__ = ["CudaLowering"]

FLOAT_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""In what floats are stored."""

FLOAT32_LEVEL = 1
"""An engine in float32 is the yardstick of accuracy, not of speed: few tactics are tried."""

_UNKNOWN = TensorFacts("float32", (), ())
"""For the reference, which takes any tensor."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Tuned:
    """A program before its weights are made.

    Attributes:
        notes: of the program, JSON-ready.
    """

    frame: Frame
    choices: Choices
    notes: dict[str, Any]


class CudaLowering:
    """Lowers one model in several precisions; what is timed for one serves the others.

    Attributes:
        environment: what timings depend on; see `timing_environment`.

    Args:
        inputs: one batch of samples. Tactics are timed at its shapes, or at those of the first profile.
        gpu, device: the GPU; by default the first of this machine. Device None is for a GPU that is not here:
            nothing is timed, choices rest on the timing cache and on estimates. A CPU stands in for the GPU
            in tests.

    Raises:
        DeviceError: there is no GPU.
        UsageError: a profile does not suit the model.
    """

    def __init__(
        self,
        model: Model,
        config: CudaConfig,
        inputs: Mapping[str, np.ndarray],
        *,
        gpu: GpuFacts | None = None,
        device: str | None = "cuda",
        on_progress: Progress = lambda stage, done, total: None,
    ) -> None:
        self._model = model
        self._config = config
        self._profiles = read_profiles(config.profiles, model.inputs)
        self._inputs = at_shapes(inputs, self._profiles[0].best) if self._profiles else inputs
        self._gpu = gpu or describe_gpu()
        self._targets = tuple(capability_of(target) for target in config.targets)
        self._device = None if device is None else torch.device(device)
        self._on_progress = on_progress
        self._listing = Listing(config, self._gpu, self._targets, self._device)
        self.environment = environment = timing_environment(self._gpu)
        self._caches = BuildCaches(config.timing_cache, environment, self._gpu, self._targets, self._device)
        self._compiled = dict(self._caches.code.kernels)
        self._plans = self._plan_maker()
        self._compilers = compilers()
        self._float_us: dict[str, dict[str, float]] = {}
        self._wide = WideValues(self._floats, self._inputs, self._trace_device, self._kept_wide())

    def lower(
        self,
        quantized: QuantizedModel | None,
        float_precision: str,
        float_attention: Collection[str] | None = None,
    ) -> tuple[LibraryModel, QuantizedModel | None]:
        """The model of library "cuda", and the quantized model that is in it.

        A product that is slower in 8 bits than in floats is left float, when its float form was lowered
        before; see `slower_products`.

        Args:
            float_precision: "fp32", "fp16" or "bf16": what is not in 8 bits.
            float_attention: nodes whose attention makes no codes beside those of the quantized model; None
                for all of them.

        Raises:
            DeviceError: the GPU does not multiply the model's codes, or has no room for what is tried.
        """
        self._check_codes(quantized)
        float_us = self._float_us.get(float_precision, {})
        beside = {region: {float_precision: time_us} for region, time_us in float_us.items()}
        shown = {} if quantized is None else beside
        tuned = self._tuned(quantized, float_precision, shown, float_attention)
        if quantized is None:
            if float_precision != "fp32":
                self._float_us[float_precision] = _times(tuned.choices)
        else:
            rows = tuned.notes["regions"]
            slower = slower_products(tuned.choices, float_us, rows, self._gpu.memory_bytes_per_us)
            if slower:
                left_float = [name for name, row in rows.items() if row["product"] in slower]
                # Fewer products in 8 bits, but more conversions between them: measured, not assumed.
                other = leave_float(quantized, slower)
                kind = quantized.target.precision
                codes_us = {region: {kind: time_us} for region, time_us in _times(tuned.choices).items()}
                shown = {**beside, **{name: codes_us[name] for name in left_float}}
                without = self._tuned(other, float_precision, shown, float_attention)
                if without.choices.total_us < tuned.choices.total_us:
                    tuned, quantized = without, other
        program = self._assembled(tuned)
        self._caches.save()
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.empty_cache()  # so that weights lie beside each other, in no gaps of what was tried
        return program_to_model(program), quantized

    def close(self) -> None:
        """End the processes that compile."""
        self._compilers.close()

    def _check_codes(self, quantized: QuantizedModel | None) -> None:
        """Fail where a GPU that it is for does not multiply the codes: nothing would run as asked for."""
        least = min([self._gpu.capability, *self._targets])
        if quantized is not None and quantized.target.activation.dtype.is_float and least < FP8_CAPABILITY:
            raise DeviceError(
                f"no {quantized.target.precision} products on compute capability {least}: "
                f"{FP8_CAPABILITY} is the least"
            )

    def reference(self, quantized: QuantizedModel | None, float_precision: str) -> Program:
        """The program with the reference in every region: right on any device, a CPU too, and slow.

        Its codes are those of the GPU's kernels; its floats differ from theirs in rounding.
        """
        self._check_codes(quantized)
        frame, _ = self._framed(quantized, float_precision)
        return _by_reference(frame)

    @cached_property
    def _own_regions(self) -> Regions:
        """Those of the model in floats, which are the same in every precision."""
        return partition(self._model.graph)

    @without_collector()
    def _framed(self, quantized: QuantizedModel | None, precision: str) -> tuple[Frame, Regions]:
        quantized = None if quantized is None else spell_per_token(quantized)
        graph = self._model.graph if quantized is None else quantized.graph
        regions = self._own_regions if graph is self._model.graph else partition(graph)
        bindings = self._model.bindings
        forms = choose_forms(graph.graph, regions, quantized, bindings, self._model.stored)
        if precision == "fp16":
            forms = replace(forms, wide=forms.wide | self._wide.known().values)
        frame = make_frame(graph, regions, forms, quantized, FLOAT_TYPES[precision], bindings=bindings)
        return self._unpadded(frame, graph, forms, regions)

    def _unpadded(
        self, frame: Frame, graph: ir.Model, forms: Forms, regions: Regions
    ) -> tuple[Frame, Regions]:
        """Without the padding that is to be removed, and with what keeps it."""
        mask = self._config.remove_padding
        if mask is None:
            return frame, regions
        reasons = reasons_against(frame, _by_reference(frame), mask, self._inputs, self._trace_device)
        kept = [Mismatch("padding", reason, region) for region, reason in reasons.items() if reason]
        unknown = {row.node: row.reason for row in regions.mismatches if row.pattern == "attention"}
        regions = replace(regions, mismatches=(*regions.mismatches, *kept))
        return remove_padding(frame, graph, forms, mask, {**unknown, **reasons}), regions

    def widen(self, samples: Iterable[Mapping[str, np.ndarray]]) -> bool:
        """See on more samples what halves are too narrow for; whether that is more than was known.

        What is lowered from now on minds it.
        """
        return self._wide.widen(samples)

    def _floats(self) -> Program:
        """The references of the model in float32."""
        return _by_reference(self._framed(None, "fp32")[0])

    def _kept_wide(self) -> KeptWide | None:
        """Where it is kept what halves are too narrow for; None without a timing cache to be written."""
        path, config = self._config.timing_cache, self._config
        if path is None or self._device is None:
            return None
        return KeptWide(Path(path), self._model, self._inputs, self.environment, [config.remove_padding])

    @property
    def _live_rows(self) -> int | None:
        """Tokens of the samples; None where padding counts as they do."""
        mask = self._config.remove_padding
        return None if mask is None else int(np.count_nonzero(self._inputs[mask]))

    @property
    def _trace_device(self) -> torch.device:
        return self._device or torch.device("cpu")

    def _tuned(
        self,
        quantized: QuantizedModel | None,
        precision: str,
        beside: Mapping[str, Mapping[str, float]],
        float_attention: Collection[str] | None,
    ) -> _Tuned:
        frame, regions = self._framed(quantized, precision)
        may_code = set() if quantized is None else _without(frame, float_attention)
        is_yardstick = precision == "fp32" and quantized is None
        references = _by_reference(frame)
        found = (
            self._wide.facts(references)
            if is_yardstick
            else trace_facts(references, self._inputs, self._trace_device)
        )
        joined = join_in_place(frame, found, self._gpu.capability)
        frame, facts = joined.frame, joined.facts
        wide = self._wide.known() if precision == "fp16" else Wide()
        pairs = [*find_pooled(frame, facts, self._gpu), *find_resized(frame, facts, self._gpu)]
        workloads = [*frame.workloads(facts, self._live_rows), *(pair.workload for pair in pairs)]
        level = FLOAT32_LEVEL if precision == "fp32" else self._config.builder_optimization_level
        with enough_memory("to try kernels"):
            choices = tune(
                workloads,
                self._listing.of(workloads, wide, may_code),
                gpu=self._gpu,
                device=self._device,
                cache=self._caches.timings,
                options=TuneOptions.of(self._config, level, self._targets),
                plans=self._plans,
                kernels=self._compiled,
                pool=self._compilers,
                on_progress=self._on_progress,
            )
        self._caches.add(choices)  # with the code of pairs as one and apart: another build compares them too
        frame, choices, apart = take_pairs(frame, choices, pairs)
        if not self._profiles:  # where a reference may be needed, it reads codes
            frame, choices = fold_conversions(frame, choices, facts, self._compile)
        self._caches.add(choices)
        regions = replace(regions, mismatches=(*regions.mismatches, *joined.mismatches, *apart))
        notes = program_notes(frame, regions, choices, facts, beside, live_rows=self._live_rows)
        notes["tuning"] += told_wide(wide) + told_padding(frame, self._config.remove_padding)
        if quantized is not None:
            notes[QUANTIZATION] = record_of(quantized)
        return _Tuned(frame, choices, notes)

    def _assembled(self, tuned: _Tuned) -> Program:
        """The program of what was chosen, weights in the layouts of its kernels among it."""
        program = self._in_profiles(tuned.frame, tuned.choices, tuned.notes["tuning"])
        profiles = {PROFILES: profile_rows(self._profiles)} if self._profiles else {}
        return replace(program, notes={**tuned.notes, **profiles})

    def _compile(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
        """Machine code of kernels for the GPU; on a CPU there is none."""
        if self._device is not None and self._device.type != "cuda":
            return {spec: CompiledKernel(spec, spec.function, {}, {}) for spec in specs}
        missing = [spec for spec in specs if spec not in self._compiled]
        found = compile_all(missing, [self._gpu.capability], pool=self._compilers) if missing else {}
        return {spec: self._compiled.get(spec) or found[spec] for spec in specs}

    def _in_profiles(self, frame: Frame, choices: Choices, notes: list[str]) -> Program:
        """The program of the choices, with the reference where one of them does not run in a profile.

        Args:
            notes: is told of these.

        Raises:
            DataError: the reference does not run there either.
        """
        tactics = choices.tactics
        while True:
            program = assemble(
                frame.program, frame.items, tactics, choices.kernels, choices.plans, places=frame.places
            )
            failing = self._failing_in_profiles(program)
            if not failing:
                return program
            references = _references(frame)
            for region, error in failing.items():
                if references.get(region) in (None, tactics.get(region)):
                    raise error  # nothing computes it there
                tactics[region] = references[region]
                notes.append(f"region '{region}' runs by the reference: {error.message}")

    def _failing_in_profiles(self, program: Program) -> dict[str, DataError]:
        """Regions whose tactic does not run at the least or the largest shapes of a profile, and why.

        Where the GPU is not here nothing can be run: the last kernel of a step is made for any shape.
        """
        if self._device is None:
            return {}
        samples = [at_shapes(self._inputs, shapes) for one in self._profiles for shapes in _shapes(one)]
        return regions_that_fail(program, samples, self._device)

    def _plan_maker(self) -> PlanMaker | None:
        """What makes cuDNN's plans; None where none are made."""
        limit_bytes = self._config.workspace_bytes
        return plan_maker(self._device, known=self._caches.code.plans, workspace_limit_bytes=limit_bytes)


def _references(frame: Frame) -> dict[str, Tactic]:
    """The reference tactic of every region that is computed by tactics."""
    return {
        item.region: reference_tactic(item.lowered.workload([_UNKNOWN] * len(item.inputs)))
        for item in frame.items
        if item.lowered is not None
    }


def _without(frame: Frame, nodes: Collection[str] | None) -> set[str]:
    """The regions that hold none of these nodes; none where `nodes` is None."""
    if nodes is None:
        return set()
    left_out = frozenset(nodes)
    lowered = ((item.region, item.lowered) for item in frame.items)
    return {name for name, one in lowered if one is not None and left_out.isdisjoint(one.region.nodes)}


def _by_reference(frame: Frame) -> Program:
    return assemble(frame.program, frame.items, _references(frame), {}, moves_weights=False)


def _shapes(profile: Profile) -> list[dict[str, tuple[int, ...]]]:
    """What a profile is tried at: its least, best and largest shapes."""
    least, most = profile.corners
    return [least, profile.best, most]


def _times(choices: Choices) -> dict[str, float]:
    return {name: one.median_us for name, one in choices.by_region.items() if one.median_us is not None}
