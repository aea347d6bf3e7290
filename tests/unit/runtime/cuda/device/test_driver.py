# SPDX-License-Identifier: Apache-2.0
"""The calls that load a kernel, on a driver that pretends."""

import ctypes

import pytest

from quantrt.errors import DeviceError
from quantrt.runtime.cuda.device.driver import CudaDriver

NOT_FOUND = 500


class Call:
    """One function of the pretended library."""

    def __init__(self, library, name):
        self.library, self.name = library, name
        self.argtypes, self.restype = None, None

    def __call__(self, *arguments):
        self.library.calls.append(self.name)
        plain = [getattr(x, "value", None) for x in arguments]
        self.library.arguments[self.name] = plain
        self.library.given[self.name] = arguments
        if self.name in ("cuModuleLoadData", "cuModuleGetFunction", "cuDevicePrimaryCtxRetain"):
            arguments[0]._obj.value = {"cuModuleLoadData": 11, "cuModuleGetFunction": 22}.get(self.name, 33)
        if self.name == "cuGetErrorName":
            arguments[1]._obj.value = b"CUDA_ERROR_NOT_FOUND"
        if self.name == "cuGetErrorString":
            arguments[1]._obj.value = b"named symbol not found"
        return self.library.codes.get(self.name, 0)


class Library:
    """A driver library that notes what is called, and fails where it is told to."""

    def __init__(self):
        self.calls, self.arguments, self.codes = [], {}, {}
        self.given = {}
        self._functions = {}

    def __getattr__(self, name):
        return self._functions.setdefault(name, Call(self, name))


@pytest.fixture
def library(monkeypatch):
    pretended = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pretended)
    return pretended


def test_a_kernel_is_loaded_in_the_primary_context(library):
    driver = CudaDriver(1)
    assert library.calls == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert library.arguments["cuDeviceGet"][1] == 1
    library.calls.clear()
    function = driver.load(b"\x7fELF", "kernel", 48 * 1024)
    assert library.calls == [
        "cuCtxPushCurrent_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuCtxPopCurrent_v2",
    ]  # fmt: skip
    assert (function.module, function.handle) == (11, 22)
    driver.unload(function)
    assert library.calls[-2:] == ["cuModuleUnload", "cuCtxPopCurrent_v2"]
    assert library.arguments["cuModuleUnload"] == [11]


def test_more_shared_memory_is_asked_for(library):
    CudaDriver(0).load(b"\x7fELF", "kernel", 48 * 1024 + 1)
    assert library.arguments["cuFuncSetAttribute"] == [22, 8, 48 * 1024 + 1]


def test_a_thread_without_a_context_gets_one(library):
    CudaDriver(0).enter_thread()
    assert library.calls[-2:] == ["cuCtxGetCurrent", "cuCtxSetCurrent"]


def test_errors_carry_the_drivers_words(library):
    driver = CudaDriver(0)
    library.codes["cuModuleGetFunction"] = NOT_FOUND
    with pytest.raises(DeviceError, match="cuModuleGetFunction for kernel 'kernel'") as error:
        driver.load(b"\x7fELF", "kernel", 0)
    assert error.value.got == "error 500, CUDA_ERROR_NOT_FOUND: named symbol not found"
    assert "cuCtxPopCurrent_v2" in library.calls  # the context is left as it was found


def test_a_tensor_is_described_with_its_contiguous_axis_first(library):
    CudaDriver(0).encode_tiled(
        4096,
        element=6,
        address=8192,
        shape=(100, 40),
        strides_bytes=(96, 2),
        block=(64, 32),
        steps=(2, 1),
        swizzle=3,
    )
    arguments = library.given["cuTensorMapEncodeTiled"]
    plain = [getattr(x, "value", None) if not hasattr(x, "__len__") else list(x) for x in arguments]
    assert plain == [4096, 6, 2, 8192, [40, 100], [96], [32, 128], [1, 2], 0, 3, 3, 0]


def test_without_a_driver(monkeypatch):
    def refuse(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(DeviceError, match="no CUDA driver"):
        CudaDriver(0)
