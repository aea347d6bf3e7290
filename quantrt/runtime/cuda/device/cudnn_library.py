# SPDX-License-Identifier: Apache-2.0
"""cuDNN's graph API through nvidia-cudnn-frontend: plans made from graphs, and run.

A plan is made once, in one to seven seconds, and serialized with its machine code; reading it back takes
milliseconds and compiles nothing. It runs with the cuDNN that made it, on the GPU that it was made for.
API: https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from quantrt.errors import DeviceError, first_line
from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan

__all__ = [
    "INSTALL",
    "PACKAGE",
    "OpenCudnnPlan",
    "is_installed",
    "make_plan",
    "open_plans",
    "operand_uids",
    "output_uids",
]

PACKAGE = "nvidia-cudnn-frontend"
INSTALL = "`pip install 'quantrt[cuda]'`"

X_UID, WEIGHT_UID, OPERAND_UID, OUTPUT_UID = 1, 2, 100, 1000
"""By which a run tells its tensors apart; operands and outputs count from the last two."""


@functools.cache  # it is asked for every convolution
def is_installed() -> bool:
    """Whether the package is there; it is not imported."""
    return importlib.util.find_spec("cudnn") is not None


def operand_uids(graph: CudnnGraph) -> range:
    """By which each operand goes."""
    return range(OPERAND_UID, OPERAND_UID + len(graph.operands))


def output_uids(graph: CudnnGraph) -> range:
    """By which each output goes."""
    return range(OUTPUT_UID, OUTPUT_UID + len(graph.outputs))


def make_plan(
    graph: CudnnGraph, properties: str | int, gpu: str, *, workspace_limit_bytes: int | None = None
) -> CudnnPlan:
    """Have cuDNN compile a graph with one of the engines that it proposes.

    Args:
        properties: of the GPU: its number, or what cuDNN serialized of one that need not be here. The latter
            does not tell how many clusters of blocks run at once: engines that need them are not proposed.
        gpu: its name.
        workspace_limit_bytes: None is no bound.

    Raises:
        DeviceError: the package is not installed, or cuDNN has no engine for the graph.
    """
    cudnn = _library()
    try:
        built = _described(cudnn, graph, _target(cudnn, properties))
        built.validate()
        built.build_operation_graph()
        built.create_execution_plans([cudnn.heur_mode.A])
        if workspace_limit_bytes is not None:
            built.deselect_workspace_greater_than(workspace_limit_bytes)
        built.check_support()
        _build(built, graph.rank)
        data = built.serialize(as_bytes=True)
        return CudnnPlan(bytes(data), int(built.get_workspace_size()), int(cudnn.backend_version()), gpu)
    except (RuntimeError, ValueError, TypeError) as error:
        raise DeviceError("cuDNN has no plan for the convolution", got=first_line(error)) from error


def open_plans(plans: Mapping[str, CudnnPlan], device: torch.device) -> dict[str, OpenCudnnPlan]:
    """Plans ready to run on one device.

    Raises:
        DeviceError: the package is not installed, is of another version, or the GPU is another one.
    """
    if not plans:
        return {}
    handles = _Handles(_library(), device)
    return {key: OpenCudnnPlan(plan, handles) for key, plan in plans.items()}


class _Handles:
    """cuDNN on one device: a handle for every thread, which no other may use."""

    def __init__(self, cudnn: ModuleType, device: torch.device) -> None:
        self.cudnn = cudnn
        self.device = device
        self._own = threading.local()
        self._all: list[Any] = []
        self._lock = threading.Lock()

    def own(self) -> Any:
        """This thread's handle."""
        try:
            return self._own.handle
        except AttributeError:
            with torch.cuda.device(self.device):
                handle = self._own.handle = self.cudnn.create_handle()
            with self._lock:
                self._all.append(handle)
            return handle

    def close(self) -> None:
        """Give all handles back; nothing may be running with them."""
        with self._lock:
            while self._all:
                self.cudnn.destroy_handle(self._all.pop())


class OpenCudnnPlan:
    """A plan, ready to run from any thread; see `open_plans`."""

    def __init__(self, plan: CudnnPlan, handles: _Handles) -> None:
        self.workspace_bytes = plan.workspace_bytes
        self._handles = handles
        self._one_at_a_time = threading.Lock()
        self._check(plan)
        cudnn = handles.cudnn
        try:
            with torch.cuda.device(handles.device):
                self._graph = cudnn.pygraph(handle=handles.own())
                self._graph.deserialize(handles.own(), plan.data)
        except (RuntimeError, ValueError, TypeError) as error:
            raise DeviceError(
                "cuDNN cannot read a plan of this engine",
                got=first_line(error),
                hint="building the engine again on this machine",
            ) from error

    def run(self, tensors: Mapping[int, torch.Tensor], workspace: torch.Tensor, region: str) -> None:
        """Enqueue one run on torch's current stream.

        Args:
            tensors: in the layouts of the graph, by their numbers.
            workspace: uint8, of `workspace_bytes` or more.
            region: for messages.

        Raises:
            DeviceError: cuDNN refuses.
        """
        handle = self._handles.own()
        stream = torch.cuda.current_stream(self._handles.device).cuda_stream
        addresses = {uid: tensor.data_ptr() for uid, tensor in tensors.items()}
        try:
            self._handles.cudnn.set_stream(handle, stream)
            with self._one_at_a_time:  # the graph keeps what it found out about its tensors
                self._graph.execute(addresses, workspace.data_ptr(), handle=handle)
        except (RuntimeError, ValueError) as error:
            message = f"cuDNN cannot run the convolution of region '{region}'"
            raise DeviceError(message, got=first_line(error)) from error

    def close(self) -> None:
        """Free it and the handles that it shares with the plans opened with it; none may be running."""
        self._graph = None
        self._handles.close()

    def _check(self, plan: CudnnPlan) -> None:
        """Fail unless library and GPU are those that the plan was made with."""
        version = _version(int(self._handles.cudnn.backend_version()))
        here = (version, torch.cuda.get_device_name(self._handles.device))
        made = (_version(plan.cudnn), plan.gpu)
        for what, got, expected in zip(("cuDNN", "GPU"), here, made, strict=True):
            if got != expected:
                raise DeviceError(
                    f"the convolutions of this engine were compiled by or for another {what}",
                    got=f"{what} {got}",
                    expected=f"{what} {expected}",
                    hint="building the engine again on this machine; with `--exclude-tactic-source cudnn` "
                    "it runs with any cuDNN",
                )


def _library() -> ModuleType:
    # Optional, and slow to import.
    try:
        return importlib.import_module("cudnn")
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(f"{PACKAGE} is not installed", got=first_line(error), hint=INSTALL) from error


def _target(cudnn: ModuleType, properties: str | int) -> dict[str, Any]:
    """What a graph is made with, to be compiled for a GPU."""
    if isinstance(properties, str):
        return {"device_property": cudnn.create_device_properties(properties)}
    with torch.cuda.device(properties):
        torch.cuda.synchronize()  # opens the GPU
        return {"handle": cudnn.create_handle()}


def _described(cudnn: ModuleType, graph: CudnnGraph, target: Mapping[str, Any]) -> Any:
    """The graph in cuDNN's words."""
    types = cudnn.data_type
    kinds = {
        "int8": types.INT8,
        "float16": types.HALF,
        "bfloat16": types.BFLOAT16,
        "float32": types.FLOAT,
    }
    made = cudnn.pygraph(
        io_data_type=kinds[graph.dtype],
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        **target,
    )

    def tensor(uid: int, shape: Sequence[int], kind: str) -> Any:
        return made.tensor(
            name=f"t{uid}",
            dim=list(shape),
            stride=_channels_last(shape),
            data_type=kinds[kind],
            uid=uid,
        )

    top, left, bottom, right = graph.pads
    sums = made.conv_fprop(
        image=tensor(X_UID, graph.x, graph.dtype),
        weight=tensor(WEIGHT_UID, graph.weight, graph.dtype),
        pre_padding=[top, left],
        post_padding=[bottom, right],
        stride=list(graph.strides),
        dilation=list(graph.dilations),
        compute_data_type=types.INT32 if graph.dtype == "int8" else types.FLOAT,
    )
    sums.set_data_type(types.FLOAT)
    output = graph.output_shape
    shapes = {"channel": (1, output[1], 1, 1), "scalar": (1, 1, 1, 1)}
    registers = [sums]
    for uid, kind in zip(operand_uids(graph), graph.operands, strict=True):
        registers.append(tensor(uid, shapes.get(kind, output), "float32" if kind in shapes else kind))
    for op, args in graph.ops:
        word = partial(_quotient, made) if op == "quotient" else getattr(made, op)
        registers.append(word(*(registers[arg] for arg in args)))
    for uid, (register, kind) in zip(output_uids(graph), graph.outputs, strict=True):
        stored = registers[register].set_output(True).set_data_type(kinds[kind])
        stored.set_uid(uid)
        stored.set_dim(list(output)).set_stride(_channels_last(output))
    return made


def _quotient(made: Any, x: Any, divisor: Any, inverse: Any) -> Any:
    """Divide as IEEE 754 does: near + rest / divisor, the rest of x exact.

    cuDNN's compiler makes one multiply-add of a product and the sum behind it: neither rest nor result is
    rounded twice (P. Markstein, Computation of elementary functions on the IBM RISC System/6000 processor,
    IBM J. Res. Dev. 34, 1990). Its own division is a product with an approximate reciprocal: with it one code
    in a million was off by one on an H200.
    """
    near = made.mul(x, inverse)
    rest = made.sub(x, made.mul(near, divisor))
    return made.add(near, made.mul(rest, inverse))


def _build(built: Any, rank: int) -> None:
    """Build a plan of cuDNN's own; the package's engines in Python are not serialized as machine code."""
    own = [number for number, plan in enumerate(built.plans) if plan.cpp_index is not None]
    if rank >= len(own):
        raise ValueError(f"cuDNN proposes {len(own)} engines, not {rank + 1}")
    built.build_plan_at_index(own[rank])


def _channels_last(shape: Sequence[int]) -> list[int]:
    N, C, H, W = shape
    return [H * W * C, 1, W * C, C]


def _version(number: int) -> str:
    """91900 as "9.19.0"."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
