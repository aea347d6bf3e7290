# SPDX-License-Identifier: Apache-2.0
"""What could run a model here: libraries x precisions, each opened or rejected with a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from quantrt.config import BuildConfig
from quantrt.device import has_bf16, saturates
from quantrt.errors import DeviceError, QuantRtError
from quantrt.ir.clone import clone
from quantrt.model.model import Model
from quantrt.model.passes.types.bind_types import bind_types
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.openvino.norms import parts_norms
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.quantize.fit.fit import GIVEN_SCALES, OWN_SCALES, Fitted
from quantrt.quantize.placement.levels import ATTENTION_LEVELS
from quantrt.quantize.placement.place_by_config import kept_in_float
from quantrt.quantize.qdq.requantized import requantized_products
from quantrt.quantize.qdq.write import write
from quantrt.quantize.target import Target
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.executor import Executor, open_executor
from quantrt.tactics.candidate import Candidate, Rejected, Spec
from quantrt.tactics.one_thread import OwnThreads

if TYPE_CHECKING:
    from quantrt.tactics.cuda.lower import CudaLowering

__all__ = [
    "Candidate",
    "Opener",
    "Rejected",
    "Spec",
    "code_targets",
    "first_not_finite",
    "int8_target",
    "lacking_specs",
    "list_specs",
    "with_bf16",
]

log = logging.getLogger(__name__)

LOWERINGS: Mapping[str, Callable[[ir.Model], LibraryModel]] = {
    "onnxruntime": lower_to_onnxruntime,
    "openvino": lower_to_openvino,
}


def with_bf16(config: BuildConfig, device: Mapping[str, Any]) -> BuildConfig:
    """The config with bf16 where int8 brings it: on a CPU with instructions for it, for what stays float.

    So fp16 comes with int8 on a GPU. OpenVINO itself computes the float layers of every model in bf16 there.
    """
    is_brought = config.assign.bf16_beside_int8 and "int8" in config.precisions
    if config.device.device != "cpu" or not is_brought or not has_bf16(device.get("isa", ())):
        return config
    return replace(config, precisions=config.precisions | {"bf16"})


def list_specs(config: BuildConfig, device: Mapping[str, Any]) -> tuple[Spec, ...]:
    """Every spec that the config allows and this machine can run, FP32 always among them."""
    if config.device.device == "cuda":
        return tuple(_cuda_specs(config))
    return tuple(_specs(config, lacks_bf16=not has_bf16(device.get("isa", ()))))


def lacking_specs(config: BuildConfig, device: Mapping[str, Any]) -> tuple[Rejected, ...]:
    """What was asked for, and this CPU has no instructions for."""
    if config.device.device == "cuda" or has_bf16(device.get("isa", ())):
        return ()
    known = list_specs(config, device)
    wanted = (spec for spec in _specs(config, lacks_bf16=False) if spec not in known)
    return tuple(Rejected(spec, "this CPU has no instructions for bf16") for spec in wanted)


def _cuda_specs(config: BuildConfig) -> Iterator[Spec]:
    """With codes comes a float precision, fp16 where bf16 is not asked for.

    It is for the layers that stay float, and the engine that codes have to beat.
    """
    yield Spec("cuda", "fp32")
    floats = [name for name in ("fp16", "bf16") if name in config.precisions]
    has_int4 = config.quantize.weights == "int4"
    if (config.code_precisions or has_int4) and not floats:
        floats = ["fp16"]
    for name in floats:
        yield Spec("cuda", name, name)
        for codes in config.code_precisions:
            yield Spec("cuda", codes, name)
    if has_int4:
        yield Spec("cuda", "int4", "fp16")


def _specs(config: BuildConfig, *, lacks_bf16: bool) -> Iterator[Spec]:
    for library in config.device.libraries:
        yield Spec(library, "fp32")
        if "int8" in config.precisions:
            yield Spec(library, "int8")
        if config.quantize.weights == "int4" and library == "onnxruntime":
            yield Spec(library, "int4")
        # ONNX Runtime's CPU provider has no bfloat16 kernels for whole models.
        if "bf16" in config.precisions and library == "openvino" and not lacks_bf16:
            yield Spec(library, "bf16", "bf16")
            if "int8" in config.precisions:
                yield Spec(library, "int8", "bf16")


def code_targets(config: BuildConfig, device: Mapping[str, Any]) -> dict[tuple[str, str], Target]:
    """The placement rules of every kind of codes that the config allows, by library and precision."""
    if config.device.device == "cuda":
        rules = {"int8": CUDA, "fp8": CUDA_FP8}
        return {("cuda", name): rules[name] for name in config.code_precisions}
    return {(library, "int8"): int8_target(library, device) for library in config.device.libraries}


def int8_target(library: str, device: Mapping[str, Any]) -> Target:
    """The placement rules for int8 in one library on one machine.

    x86 CPUs without VNNI add pairs of u8 x s8 products in 16 bits, which saturate: there ONNX Runtime's
    weights keep to 7 bits (its documentation calls this reduce_range). OpenVINO handles it by itself.
    """
    if library == "cuda":
        return CUDA
    if library == "openvino":
        return OPENVINO
    return replace(ORT, weight_qmax=63) if saturates(device.get("isa", ())) else ORT


@dataclass(frozen=True)
class _Lowered:
    """What a library of the CPU is given; see Candidate.

    Attributes:
        is_for_all: whether it is so whatever the type of its floats.
    """

    model: LibraryModel
    kept_float: tuple[str, ...]
    fitted: Fitted | None
    is_for_all: bool


class Opener:
    """Makes and opens the candidates of one model. What is timed for one of them serves the next.

    Args:
        inputs: the samples that are timed, by input.
        on_progress: called with ("compile" or "time", done, in all) as kernels for a GPU are chosen.
        weight_only: the model with its weights in 4 bits; None where nobody asked for it.
        float_graph: of a model that was quantized before, what runs on a GPU in less than FP32; FP32 is the
            model as given.
    """

    def __init__(
        self,
        model: Model,
        config: BuildConfig,
        inputs: Mapping[str, np.ndarray],
        on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        *,
        float_graph: ir.Model | None = None,
        weight_only: ir.Model | None = None,
    ) -> None:
        self._weight_only = weight_only
        self._float_graph = float_graph
        self._model = model
        self._config = config
        self._inputs = inputs
        self._on_progress = on_progress
        self._cuda: dict[str, CudaLowering] = {}  # by which graph it lowers
        self._lowered: dict[tuple[str, str], _Lowered] = {}  # by library, and which graph it is of
        self._floats: dict[str, Mapping[str, np.ndarray]] = {}  # FP32's outputs, by library
        self._all_finite = False
        self._threads = OwnThreads()

    def open(self, spec: Spec, fitted: Fitted | None) -> Candidate | Rejected:
        """Lower and open one spec; a library that refuses the model is a rejection, not an error.

        Args:
            fitted: the quantized model, for specs with codes.
        """
        device = self._config.device
        options = ExecOptions(threads=device.threads, hint=device.hint, float_precision=spec.float_precision)
        kept: tuple[str, ...] = ()
        try:
            if spec.library == "cuda":
                lowered, fitted = self._lower_for_gpu(spec, fitted)
            else:
                lowered, kept = self._lower_for_cpu(spec, fitted)
                options = replace(options, keeps_floats=bool(kept))
            outputs = [output.name for output in self._model.outputs]
            executor = open_executor(lowered, options, output_names=outputs)
            if spec.library != "onnxruntime":  # what they compile, and take memory for, is for shapes
                self._run_once(spec, executor)
        except QuantRtError as error:
            log.info("%s cannot run this model: %s", spec.name, error.message)
            return Rejected(spec, error.message, hint=error.hint)
        candidate = Candidate(spec, lowered, options, executor, fitted, kept)
        if spec.precision == "fp32" and self._config.code_precisions:
            return candidate
        return self._threads.of(candidate, self._inputs, outputs)

    @property
    def environment(self) -> Mapping[str, str] | None:
        """What the values of programs for a GPU depend on beside them; None for a CPU."""
        is_gpu = self._config.device.device == "cuda"
        return self._cuda_lowering(Spec("cuda", "fp32")).environment if is_gpu else None

    @property
    def has_finite_floats(self) -> bool:
        """Whether FP32 ran, and every number that it made is one."""
        outputs = [array for found in self._floats.values() for array in found.values()]
        return bool(outputs) and all(np.isfinite(x).all() for x in outputs if x.dtype.kind == "f")

    def expect_finite(self) -> None:
        """FP32 need not run: it is known that all of its outputs are finite on these inputs."""
        self._all_finite = True

    def widen(self, specs: Sequence[Spec], samples: Sequence[Mapping[str, np.ndarray]]) -> bool:
        """See on more samples what fp16 is too narrow for; whether that is more than was known.

        Args:
            specs: of library "cuda"; they are opened anew by `open`, like all of their graphs.
        """
        lowerings = dict.fromkeys(map(self._cuda_lowering, specs))
        found = [lowering.widen(samples) for lowering in lowerings]
        return any(found)

    def close(self) -> None:
        """End what serves several candidates; those that are open stay so."""
        for lowering in self._cuda.values():
            lowering.close()

    def _run_once(self, spec: Spec, executor: Executor) -> None:
        """One run; the executor is closed where that is refused, or overflows where FP32 does not."""
        try:
            outputs = executor.run(self._inputs)
            finite = {name: np.zeros_like(x) for name, x in outputs.items()} if self._all_finite else {}
            lost = first_not_finite(outputs, self._floats.get(spec.library, finite))
            if lost is not None:
                raise DeviceError(f"output '{lost}' is not finite where FP32's is")
        except QuantRtError:
            executor.close()
            raise
        if spec.precision == "fp32":
            self._floats[spec.library] = outputs

    def _lower_for_cpu(self, spec: Spec, fitted: Fitted | None) -> tuple[LibraryModel, tuple[str, ...]]:
        """What a library is given, and the products that it would make int8 by itself.

        Made once for candidates that differ by the type of their floats alone, where that does not matter.
        """
        key = (spec.library, spec.precision if fitted is not None or spec.precision == "int4" else "floats")
        known = self._lowered.get(key)
        if known is not None and known.fitted is fitted and known.is_for_all:
            return known.model, known.kept_float
        graph = self._graph_of(spec, fitted)
        kept = requantized_products(graph) if spec.library == "onnxruntime" else ()
        is_for_all = spec.library == "onnxruntime" or not parts_norms(graph)
        model = (
            LOWERINGS[spec.library](graph) if is_for_all else lower_to_openvino(graph, spec.float_precision)
        )
        if not spec.is_mixed:
            self._lowered[key] = _Lowered(model, kept, fitted, is_for_all)
        return model, kept

    def _graph_of(self, spec: Spec, fitted: Fitted | None) -> ir.Model:
        """What a library of the CPU is given."""
        graph = self._model.graph
        if spec.precision == "int4" and self._weight_only is not None:
            graph = self._weight_only
        if fitted is not None:
            graph = write(fitted.model)
        if self._model.bindings:
            graph = clone(graph)
            bind_types(graph, self._model.bindings)
        return graph

    def _lower_for_gpu(self, spec: Spec, fitted: Fitted | None) -> tuple[LibraryModel, Fitted | None]:
        """The program; and what of `fitted` is in it, for timings may leave layers float."""
        quantized = None if fitted is None else fitted.model
        lowered, quantized = self._cuda_lowering(spec).lower(
            quantized, spec.float_precision, self._float_attention(spec, fitted)
        )
        return lowered, fitted if fitted is None or quantized is None else replace(fitted, model=quantized)

    def _float_attention(self, spec: Spec, fitted: Fitted | None) -> Collection[str] | None:
        """Nodes whose attention stays float; None for all of them.

        Scales that were given tell what is in codes: with these nothing else is.
        """
        config = self._config.quantize
        if fitted is None or spec.float_attention or config.quantization_level not in ATTENTION_LEVELS:
            return None
        if fitted.floats is None or fitted.method in (GIVEN_SCALES, OWN_SCALES):
            return None
        return kept_in_float(fitted.floats.graph, fitted.model.target, config)

    def _cuda_lowering(self, spec: Spec) -> CudaLowering:
        """The lowering of the graph that a spec runs; specs of one graph share it."""
        from quantrt.tactics.cuda.lower import CudaLowering  # torch is optional

        graphs = {"fp32": None, "int4": self._weight_only}
        own = graphs.get(spec.precision, self._float_graph)
        which = "given" if own is None else "int4" if spec.precision == "int4" else "own"
        if which not in self._cuda:
            model = self._model if own is None else replace(self._model, graph=own)
            self._cuda[which] = CudaLowering(
                model,
                self._config.cuda,
                self._inputs,
                on_progress=self._on_progress,
            )
        return self._cuda[which]


def first_not_finite(outputs: Mapping[str, np.ndarray], floats: Mapping[str, np.ndarray]) -> str | None:
    """The first output with infinities or NaNs where another engine has numbers."""
    for name, want in floats.items():
        got = outputs[name]
        is_comparable = got.dtype.kind == want.dtype.kind == "f" and got.shape == want.shape
        if is_comparable and (np.isfinite(want) & ~np.isfinite(got)).any():
            return name
    return None
