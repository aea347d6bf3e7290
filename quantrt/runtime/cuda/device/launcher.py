# SPDX-License-Identifier: Apache-2.0
"""Kernels ready to launch: machine code on a GPU, Triton's interpreter on a CPU."""

from __future__ import annotations

import ctypes
import importlib
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from quantrt.errors import DeviceError, InternalError, ModelError
from quantrt.kernels.descriptor import descriptor_type_of
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.nested import nested
from quantrt.kernels.overlap import OVERLAP_CAPABILITY
from quantrt.runtime.cuda.device.driver import CudaDriver, LaunchConfig
from quantrt.runtime.cuda.device.tensor_maps import Boxes, TensorMaps, strides_of

__all__ = ["CubinLauncher", "Frame", "InterpreterLauncher", "Packing", "choose_capability", "open_launchers"]

WARP_SIZE = 32
ALIGNMENT = 16
"""Of pointers in bytes and of integers that a kernel was compiled to count on."""

FIRST_SPECIFIC = 90
"""From this compute capability on, machine code is for one architecture alone."""

_FORMATS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp32": "f", "fp64": "d",
}  # fmt: skip
"""Triton's scalar types as the struct module packs them, natively aligned as the kernel's parameters are."""


def open_launchers(
    kernels: Mapping[str, CompiledKernel], device: torch.device
) -> Mapping[str, CubinLauncher | InterpreterLauncher]:
    """A launcher for each kernel.

    Raises:
        DeviceError: no machine code fits the GPU, or it cannot be loaded; on a CPU, Triton is not in its
            interpreter.
    """
    if device.type != "cuda":
        return {key: InterpreterLauncher(kernel.spec) for key, kernel in kernels.items()}
    if not kernels:
        return {}
    major, minor = torch.cuda.get_device_capability(device)
    index = torch.empty(0, device=device).device.index  # of "cuda" the current one
    driver = CudaDriver(index)
    return {
        key: CubinLauncher(kernel, driver, capability=major * 10 + minor, index=index)
        for key, kernel in kernels.items()
    }


def choose_capability(kernel: CompiledKernel, capability: int) -> int:
    """Which of the kernel's cubins runs on a GPU: its own, or the nearest older one of the same generation.

    Machine code runs on later minor versions of its major version (CUDA C++ programming guide, 3.1.2). From
    9.0 on Triton's is architecture-specific ("sm_90a"), which runs on no other (PTX ISA, directive .target).

    Args:
        capability: compute capability of the GPU, such as 86.

    Raises:
        DeviceError: none does.
    """
    last = min(capability, FIRST_SPECIFIC - 1)
    older = [have for have in kernel.cubins if have // 10 == capability // 10 and have <= last]
    fitting = [capability] if capability in kernel.cubins else older
    if not fitting:
        held = ", ".join(f"sm_{have}" for have in sorted(kernel.cubins)) or "none"
        raise DeviceError(
            f"kernel '{kernel.symbol}' has no machine code for this GPU",
            got=f"a GPU of sm_{capability}, machine code for {held}",
            hint=f"building the engine again with --target sm_{capability}",
        )
    return max(fitting)


class CubinLauncher:
    """Launches machine code through the driver, on torch's current stream."""

    def __init__(self, kernel: CompiledKernel, driver: CudaDriver, *, capability: int, index: int) -> None:
        chosen = choose_capability(kernel, capability)
        self.spec: KernelSpec = kernel.spec
        self._driver = driver
        self._index = index
        self._shared_bytes = kernel.shared_bytes[chosen]
        self._function = driver.load(kernel.cubins[chosen], kernel.symbol, self._shared_bytes)
        self._packing = Packing(kernel.spec, kernel.extra_pointers, driver)
        self._threads = WARP_SIZE * kernel.spec.num_warps
        self._overlaps = kernel.overlaps and chosen >= OVERLAP_CAPABILITY
        self._frames = threading.local()

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """See Launcher. A grid with a 0 launches nothing."""
        x, y, z = grid
        if not (x and y and z):
            return
        try:
            frame: Frame = self._frames.frame
        except AttributeError:
            self._driver.enter_thread()
            frame = self._frames.frame = self._packing.frame()
            frame.config = LaunchConfig(self._threads, self._shared_bytes) if self._overlaps else None
        self._packing.pack(frame, arguments)
        stream = torch.cuda.current_stream(self._index).cuda_stream
        if frame.config is not None:
            frame.config.grid[:] = grid
            frame.config.stream = stream
            code = self._driver.launch_with(frame.config, self._function.handle, frame.pointers, None)
        else:
            code = self._driver.launch(
                self._function.handle, x, y, z, self._threads, 1, 1, self._shared_bytes,
                stream, frame.pointers, None,
            )  # fmt: skip
        if code:
            what = f"a launch of '{self.spec.function}' on {grid} blocks of {self._threads} threads"
            self._driver.check(code, what)

    def close(self) -> None:
        """Free the machine code; nothing may be running it."""
        self._driver.unload(self._function)


class Frame:
    """Memory of one launch's arguments. The driver copies them before a launch returns.

    Attributes:
        buffer: the packed arguments but descriptors.
        maps: the descriptors.
        pointers: address of the array with the address of each parameter.
        config: of a launch that overlaps the kernel before it; None for others.
    """

    def __init__(self, size_bytes: int, offsets: Sequence[int | None], maps: TensorMaps) -> None:
        self.config: LaunchConfig | None = None
        self.buffer = ctypes.create_string_buffer(max(size_bytes, 1))
        self.maps = maps
        start = ctypes.addressof(self.buffer)
        described = iter(maps.addresses)
        addresses = (next(described) if offset is None else start + offset for offset in offsets)
        self._array = (ctypes.c_void_p * max(len(offsets), 1))(*addresses)
        self.pointers = ctypes.addressof(self._array)


class Packing:
    """Arguments of one kernel as bytes, in the layout of its parameters.

    Args:
        driver: makes descriptors, for kernels that take some.

    Raises:
        ModelError: the signature has a type that cannot be passed.
    """

    def __init__(self, spec: KernelSpec, extra_pointers: int, driver: CudaDriver | None = None) -> None:
        kinds = [type_name for _, type_name in spec.signature]
        described = [(number, descriptor_type_of(kind)) for number, kind in enumerate(kinds)]
        self._descriptors = {number: kind for number, kind in described if kind is not None}
        plain = {number: kind for number, kind in enumerate(kinds) if number not in self._descriptors}
        unknown = [kind for kind in plain.values() if not kind.startswith("*") and kind not in _FORMATS]
        if unknown:
            raise ModelError(f"kernel '{spec.function}' takes what cannot be passed", got=unknown[0])
        codes: list[str] = []
        self._offsets: list[int | None] = []
        for number, kind in [*enumerate(kinds), *((len(kinds), "*"),) * extra_pointers]:
            if number in self._descriptors:
                self._offsets.append(None)
                rank = len(self._descriptors[number].block)
                added = ["i"] * rank + ["q"] * rank
            else:
                added = ["P" if kind.startswith("*") else _FORMATS[kind]]
            for code in added:
                codes.append(code)
                self._offsets.append(struct.calcsize("@" + "".join(codes)) - struct.calcsize(code))
        self._spec = spec
        self._driver = driver
        self._struct = struct.Struct("@" + "".join(codes))
        self._count = len(kinds)
        self._pointers = [number for number, kind in plain.items() if kind.startswith("*")]
        self._aligned = [n for n, (name, _) in enumerate(spec.signature) if name in spec.aligned]
        self._extra = [0] * extra_pointers

    def frame(self) -> Frame:
        """Memory for one thread's launches."""
        return Frame(self._struct.size, self._offsets, TensorMaps(tuple(self._descriptors.values())))

    def pack(self, frame: Frame, arguments: Sequence[Any]) -> None:
        """Write the arguments: tensors (None for a null pointer) and numbers.

        Raises:
            DeviceError: the driver cannot describe a tensor.
            InternalError: a number of arguments, a type or an alignment that the kernel was not compiled for.
        """
        values = list(arguments)
        if len(values) != self._count:
            raise self._wrong(f"{len(values)} arguments", f"{self._count}")
        for number in self._pointers:
            tensor = values[number]
            values[number] = 0 if tensor is None else tensor.data_ptr()
        for number in self._aligned:
            if values[number] % ALIGNMENT:
                name = self._spec.signature[number][0]
                raise self._wrong(f"{name}={values[number]}", f"a multiple of {ALIGNMENT}")
        if self._descriptors:
            values = self._described(frame, values)
        try:
            self._struct.pack_into(frame.buffer, 0, *values, *self._extra)
        except (struct.error, TypeError) as error:
            raise self._wrong(f"{values}: {error}", f"{self._spec.signature}") from error

    def _described(self, frame: Frame, values: list[Any]) -> list[Any]:
        """Make the descriptors; the values with shape and strides in place of their tensors."""
        if self._driver is None:
            raise self._wrong("a descriptor", "a driver to make it with")
        for place, number in enumerate(self._descriptors):
            frame.maps.put(place, values[number], self._driver)
        flat: list[Any] = []
        for number, value in enumerate(values):
            tensor = value.tensor if isinstance(value, Boxes) else value
            flat += [*tensor.shape, *strides_of(tensor)] if number in self._descriptors else [value]
        return flat

    def _wrong(self, got: str, expected: str) -> InternalError:
        return InternalError(
            f"kernel '{self._spec.function}' was launched with wrong arguments", got=got, expected=expected
        )


class InterpreterLauncher:
    """Runs a kernel's Python source on tensors in host memory, element for element as the GPU would.

    Raises:
        DeviceError: Triton was imported without TRITON_INTERPRET=1, or is not installed.
        ModelError: there is no such kernel.
    """

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self._constants = dict(spec.constants)
        self._function = _interpreted(spec)

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """See Launcher."""
        if not all(grid):
            return
        named = {name: value for (name, _), value in zip(self.spec.signature, arguments, strict=True)}
        parameters = self._function.arg_names
        self._function[tuple(grid)](**nested({**named, **self._constants}, parameters))

    def close(self) -> None:
        """Nothing is held."""


def _interpreted(spec: KernelSpec) -> Any:
    if not spec.family.isidentifier():
        raise ModelError("there is no such kernel family", got=spec.family)
    try:
        module = importlib.import_module(f"quantrt.kernels.{spec.family}.triton_kernel")
        from triton.runtime.interpreter import InterpretedFunction  # optional, as the module above
        from triton.runtime.jit import JITFunction
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "triton":
            raise DeviceError("Triton is not installed", hint="`pip install 'quantrt[cuda]'`") from error
        raise ModelError("there is no such kernel family", got=spec.family) from error
    function = vars(module).get(spec.function)
    if function is None:
        raise ModelError(f"kernel family '{spec.family}' has no such kernel", got=spec.function)
    if isinstance(function, JITFunction) and function.is_gluon():
        raise DeviceError(
            f"kernel '{spec.function}' cannot run on a CPU: it is in Gluon, which has no interpreter"
        )
    if not isinstance(function, InterpretedFunction):
        raise DeviceError(
            f"kernel '{spec.function}' cannot run on a CPU: Triton is not in its interpreter",
            hint="TRITON_INTERPRET=1 in the environment before Python starts",
        )
    return function
