# SPDX-License-Identifier: Apache-2.0
"""The few calls of the CUDA driver API that load and launch machine code, through ctypes.

Everything happens in the primary context of a device, which torch uses too, so that its memory and streams
are ours. https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from quantrt.errors import DeviceError

__all__ = ["CudaDriver", "CudaFunction", "LaunchConfig"]

LIBRARY = "libcuda.so.1"
SUCCESS = 0
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
DEFAULT_SHARED_BYTES = 48 * 1024
"""What a kernel may use without asking; CUDA C++ programming guide, 16.7.3."""

NO_INTERLEAVE = 0
PROMOTION_256B = 3
FILL_ZEROS = 0
"""CUtensorMapInterleave, CUtensorMapL2promotion and CUtensorMapFloatOOBfill."""

_LAUNCH_TYPES = (
    ctypes.c_void_p,  # function
    *(ctypes.c_uint,) * 6,  # grid, block
    ctypes.c_uint,  # dynamic shared memory
    ctypes.c_void_p,  # stream
    ctypes.c_void_p,  # pointers to the arguments
    ctypes.c_void_p,  # extra
)


PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""CUlaunchAttributeID of a launch that does not wait for the end of the kernel before it."""


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: which, and a value of up to 64 bytes at a multiple of 8."""

    _fields_ = (("id", ctypes.c_int), ("_pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of a launch that overlaps the kernel before it, see kernels/overlap.py.

    Args:
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
    """

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )

    def __init__(self, threads: int, shared_bytes: int) -> None:
        super().__init__()
        self.block[:] = (threads, 1, 1)
        self.shared_bytes = shared_bytes
        attribute = _LaunchAttribute(id=PROGRAMMATIC_STREAM_SERIALIZATION)
        attribute.value[0] = 1
        self.attributes = ctypes.pointer(attribute)
        self.attribute_count = 1


class CudaFunction:
    """One kernel in a loaded module.

    Attributes:
        handle: the CUfunction.
        module: the CUmodule that holds it.
    """

    def __init__(self, handle: int, module: int) -> None:
        self.handle = handle
        self.module = module


class CudaDriver:
    """The driver library with the primary context of one device.

    Args:
        ordinal: of the device, as torch counts.

    Raises:
        DeviceError: there is no driver, or it refuses the device.
    """

    def __init__(self, ordinal: int) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DeviceError("there is no CUDA driver on this machine", got=str(error)) from error
        self.launch = self._library.cuLaunchKernel
        self.launch.argtypes = _LAUNCH_TYPES
        self.launch.restype = ctypes.c_int
        self.launch_with = self._library.cuLaunchKernelEx
        self.launch_with.argtypes = (ctypes.POINTER(LaunchConfig), *(ctypes.c_void_p,) * 3)
        self.launch_with.restype = ctypes.c_int
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        # Kept until the process ends, as torch keeps it: releasing it would not free anything.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context

    def load(self, cubin: bytes, symbol: str, shared_bytes: int) -> CudaFunction:
        """A kernel ready to launch.

        Args:
            shared_bytes: dynamic shared memory that it will be launched with.

        Raises:
            DeviceError: the driver refuses the machine code, the name or the amount of memory.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin), kernel=symbol)
            name = ctypes.c_char_p(symbol.encode())
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name, kernel=symbol)
            if shared_bytes > DEFAULT_SHARED_BYTES:
                attribute = ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES)
                size = ctypes.c_int(shared_bytes)
                self._call("cuFuncSetAttribute", function, attribute, size, kernel=symbol)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        return CudaFunction(function.value or 0, module.value or 0)

    def unload(self, function: CudaFunction) -> None:
        """Free the module of a kernel that nothing runs any more."""
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call("cuModuleUnload", ctypes.c_void_p(function.module))
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def enter_thread(self) -> None:
        """Make the context current in this thread unless another one is.

        A new thread has none until its first call of the runtime API, and torch makes none for device 0.
        """
        current = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(current))
        if not current.value:
            self._call("cuCtxSetCurrent", self._context)

    def encode_tiled(
        self,
        target: int,
        *,
        element: int,
        address: int,
        shape: Sequence[int],
        strides_bytes: Sequence[int],
        block: Sequence[int],
        steps: Sequence[int],
        swizzle: int,
    ) -> None:
        """Describe a tensor to the copy engine. Axes are in our order, the contiguous one last.

        Args:
            target: address of 128 bytes for the CUtensorMap, a multiple of 64.
            element, swizzle: CUtensorMapDataType and CUtensorMapSwizzle.
            address: of the tensor on the device.
            block: what one copy moves.
            steps: from one element that it moves to the next, along every axis.

        Raises:
            DeviceError: the driver refuses, as where a stride is no multiple of 16 bytes.
        """
        rank = len(shape)
        spans = [size * step for size, step in zip(block, steps, strict=True)]
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(target),
            ctypes.c_int(element),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*reversed(shape)),
            (ctypes.c_uint64 * (rank - 1))(*reversed(strides_bytes[:-1])),
            (ctypes.c_uint32 * rank)(*reversed(spans)),
            (ctypes.c_uint32 * rank)(*reversed(steps)),
            ctypes.c_int(NO_INTERLEAVE),
            ctypes.c_int(swizzle),
            ctypes.c_int(PROMOTION_256B),
            ctypes.c_int(FILL_ZEROS),
        )

    def check(self, code: int, what: str) -> None:
        """Fail unless a return code is success.

        Raises:
            DeviceError: with the driver's name and text for the code.
        """
        if code != SUCCESS:
            raise DeviceError(f"the CUDA driver refuses {what}", got=self._text(code))

    def _call(self, name: str, *arguments: Any, kernel: str = "") -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_int
        self.check(function(*arguments), f"{name} for kernel '{kernel}'" if kernel else name)

    def _text(self, code: int) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            getattr(self._library, name)(ctypes.c_int(code), ctypes.byref(text))
            texts.append(text.value.decode() if text.value else "unknown")
        return f"error {code}, {texts[0]}: {texts[1]}"
