# SPDX-License-Identifier: Apache-2.0
"""Which machine code is taken, how arguments are packed, and what is said when either is impossible."""

import ctypes
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DeviceError, InternalError, ModelError
from quantrt.kernels.descriptor import DescriptorType, descriptor_type_of, parameters_of
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.runtime.cuda.device.driver import CudaFunction, LaunchConfig
from quantrt.runtime.cuda.device.launcher import (
    CubinLauncher,
    InterpreterLauncher,
    Packing,
    choose_capability,
    open_launchers,
)
from quantrt.runtime.cuda.device.tensor_maps import Boxes

SPEC = KernelSpec(
    family="probe",
    function="probe",
    signature=(
        ("flag", "i1"),
        ("x_ptr", "*fp16"),
        ("M", "i32"),
        ("scale", "fp32"),
        ("n", "i64"),
        ("e", "fp64"),
    ),
    aligned=frozenset({"x_ptr", "M"}),
    constants=(),
    num_warps=8,
)


class Parameters(ctypes.Structure):
    """SPEC's arguments and two scratch pointers, laid out by the C compiler's rules."""

    _fields_ = (
        ("flag", ctypes.c_int8),
        ("x_ptr", ctypes.c_void_p),
        ("M", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("n", ctypes.c_int64),
        ("e", ctypes.c_double),
        ("scratch", ctypes.c_void_p),
        ("profile", ctypes.c_void_p),
    )


def kernel(*capabilities: int) -> CompiledKernel:
    cubins = dict.fromkeys(capabilities, b"\x7fELF")
    return CompiledKernel(SPEC, "probe_0d", cubins, dict.fromkeys(capabilities, 1024), extra_pointers=2)


@pytest.mark.parametrize(
    ("have", "gpu", "chosen"),
    [
        ((80, 90), 90, 90),
        ((80, 86, 90), 89, 86),
        ((80,), 86, 80),
        ((80, 86, 89), 80, 80),
        ((90, 100, 120), 120, 120),
    ],
)
def test_own_machine_code_or_that_of_an_older_minor_version(have, gpu, chosen):
    assert choose_capability(kernel(*have), gpu) == chosen


@pytest.mark.parametrize(
    ("have", "gpu"), [((90,), 80), ((86,), 80), ((80, 90), 100), ((100, 120), 121), ((), 90)]
)
def test_no_machine_code_names_both_sides(have, gpu):
    with pytest.raises(DeviceError, match="'probe_0d' has no machine code for this GPU") as error:
        choose_capability(kernel(*have), gpu)
    text = str(error.value)
    assert f"sm_{gpu}" in text
    assert f"--target sm_{gpu}" in text
    assert all(f"sm_{one}" in text for one in have)


def packed(arguments) -> Parameters:
    packing = Packing(SPEC, extra_pointers=2)
    frame = packing.frame()
    ctypes.memset(frame.buffer, 0x55, ctypes.sizeof(frame.buffer))
    packing.pack(frame, arguments)
    found = Parameters()
    # Read each argument where the driver reads it: through the array of addresses.
    array = (ctypes.c_void_p * len(Parameters._fields_)).from_address(frame.pointers)
    for (name, kind), address in zip(Parameters._fields_, array, strict=True):
        setattr(found, name, kind.from_address(address).value)
    return found


def test_arguments_are_packed_as_the_kernel_reads_them():
    x = torch.zeros(64, dtype=torch.float16)[:]
    found = packed([True, x, 48, 0.1, -(2**40), 0.1])
    assert (found.flag, found.x_ptr, found.M, found.n, found.e) == (1, x.data_ptr(), 48, -(2**40), 0.1)
    assert found.scale == np.float32(0.1)
    assert (found.scratch, found.profile) == (None, None)
    assert packed([False, None, 0, 0.0, 0, 0.0]).x_ptr is None


@pytest.mark.parametrize(
    "arguments",
    [
        [True, None, 48, 0.1, 1],
        [True, None, 47, 0.1, 1, 0.1],
        [True, None, 2**31, 0.1, 1, 0.1],
        [True, None, 48, "a", 1, 0.1],
        [True, None, 48.5, 0.1, 1, 0.1],
    ],
)
def test_wrong_arguments_are_found_before_the_launch(arguments):
    with pytest.raises(InternalError, match="'probe' was launched with wrong arguments"):
        packed(arguments)


def test_a_pointer_that_is_not_aligned_is_found():
    x = torch.zeros(64, dtype=torch.float16)
    with pytest.raises(InternalError, match="wrong arguments") as error:
        packed([True, x[1:], 48, 0.1, 1, 0.1])
    assert error.value.expected == "a multiple of 16"


def test_types_that_cannot_be_passed():
    with pytest.raises(ModelError, match="cannot be passed") as error:
        Packing(replace(SPEC, signature=(("x", "fp16"),)), 0)
    assert error.value.got == "fp16"


class Driver:
    """A driver that notes launches."""

    def __init__(self):
        self.launches, self.threads, self.code = [], 0, 0

    def load(self, cubin, symbol, shared_bytes):
        return CudaFunction(7, 8)

    def enter_thread(self):
        self.threads += 1

    def launch(self, *arguments):
        self.launches.append(arguments)
        return self.code

    def launch_with(self, config, *arguments):
        attribute = config.attributes[0]
        place = (*config.grid, *config.block, config.shared_bytes, config.stream)
        self.launches.append((arguments[0], *place, config.attribute_count, attribute.id, attribute.value[0]))
        return self.code

    def check(self, code, what):
        raise DeviceError(f"the CUDA driver refuses {what}", got=str(code))


def test_a_launch_goes_to_the_current_stream(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda index: types.SimpleNamespace(cuda_stream=100 + index)
    )
    driver = Driver()
    launcher = CubinLauncher(kernel(80, 90), driver, capability=90, index=3)
    arguments = [True, None, 48, 0.1, 1, 0.1]
    launcher((5, 2, 1), arguments)
    launcher((0, 2, 1), arguments)  # nothing to do
    launcher((5, 2, 3), arguments)
    assert [launch[:9] for launch in driver.launches] == [
        (7, 5, 2, 1, 256, 1, 1, 1024, 103),
        (7, 5, 2, 3, 256, 1, 1, 1024, 103),
    ]
    assert driver.threads == 1
    driver.code = 1
    with pytest.raises(DeviceError, match=r"a launch of 'probe' on \(1, 1, 99999\) blocks of 256 threads"):
        launcher((1, 1, 99999), arguments)


def test_a_kernel_that_waits_is_launched_before_the_one_ahead_of_it_ends(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda index: types.SimpleNamespace(cuda_stream=100 + index)
    )
    driver, arguments = Driver(), [True, None, 48, 0.1, 1, 0.1]
    waiting = replace(kernel(80, 90), overlaps=True)
    launcher = CubinLauncher(waiting, driver, capability=90, index=3)
    launcher((5, 2, 1), arguments)
    launcher((4, 2, 1), arguments)
    assert driver.launches == [
        (7, 5, 2, 1, 256, 1, 1, 1024, 103, 1, 6, 1),
        (7, 4, 2, 1, 256, 1, 1, 1024, 103, 1, 6, 1),
    ]
    CubinLauncher(waiting, driver, capability=86, index=3)((5, 2, 1), arguments)
    assert driver.launches[-1][:9] == (7, 5, 2, 1, 256, 1, 1, 1024, 103)
    assert len(driver.launches[-1]) == 11, "as on GPUs that know of no such launches"
    driver.code = 1
    with pytest.raises(DeviceError, match=r"a launch of 'probe' on \(1, 1, 9\) blocks"):
        launcher((1, 1, 9), arguments)


def test_a_launch_is_described_as_the_driver_reads_it():
    """Offsets of CUlaunchConfig and CUlaunchAttribute in cuda.h."""
    found = [getattr(LaunchConfig, name).offset for name, _ in LaunchConfig._fields_]
    assert found == [0, 12, 24, 32, 40, 48]
    attribute = LaunchConfig(32, 0).attributes._type_
    assert (attribute.value.offset, ctypes.sizeof(attribute)) == (8, 72)


class Encoder:
    """A driver that writes what it is asked to describe where the description goes."""

    def __init__(self):
        self.count = 0

    def encode_tiled(self, target, **what):
        self.count += 1
        self.what = what
        assert target % 64 == 0
        ctypes.memset(target, what["address"] % 251, 128)


class Described(ctypes.Structure):
    """A kernel's parameters behind the bytes of one descriptor."""

    _fields_ = (
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("row_stride", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("M", ctypes.c_int32),
        ("scratch", ctypes.c_void_p),
    )


def test_a_tensor_with_a_descriptor_is_described_once():
    kind = str(DescriptorType("fp16", (64, 32), 64))
    spec = replace(SPEC, signature=(("x_desc", kind), ("M", "i32")), aligned=frozenset())
    assert parameters_of(kind) == 5
    driver = Encoder()
    packing = Packing(spec, extra_pointers=1, driver=driver)
    frame = packing.frame()
    x = torch.zeros(6, 48, dtype=torch.float16)[:, :40]
    for _ in range(2):
        packing.pack(frame, [x, 6])
    assert driver.count == 1
    assert driver.what == {
        "element": 6,
        "address": x.data_ptr(),
        "shape": (6, 40),
        "strides_bytes": (96, 2),
        "block": (64, 32),
        "steps": (1, 1),
        "swizzle": 2,
    }
    addresses = list((ctypes.c_void_p * 7).from_address(frame.pointers))
    assert ctypes.string_at(addresses[0], 128) == bytes([x.data_ptr() % 251]) * 128
    values = [
        kind.from_address(address).value
        for (_, kind), address in zip(Described._fields_, addresses[1:], strict=True)
    ]
    assert values == [6, 40, 48, 1, 6, None]
    packing.pack(frame, [x[:1], 1])  # the stride of a single row says nothing
    assert driver.what["strides_bytes"] == (80, 2)
    assert driver.count == 2


def test_boxes_are_described_in_place_of_the_block_of_the_type():
    kind = str(DescriptorType("i8", (1, 1, 64, 32), 32))
    spec = replace(SPEC, signature=(("x_desc", kind), ("M", "i32")), aligned=frozenset())
    driver = Encoder()
    packing = Packing(spec, extra_pointers=0, driver=driver)
    frame = packing.frame()
    x = torch.zeros(2, 48, 14, 14, dtype=torch.int8).contiguous(memory_format=torch.channels_last)
    pixels = x.permute(0, 2, 3, 1)
    for _ in range(2):
        packing.pack(frame, [Boxes(pixels, (2, 5, 6, 32), (1, 2, 2, 1)), 7])
    assert driver.count == 1
    assert driver.what == {
        "element": 0,
        "address": x.data_ptr(),
        "shape": (2, 14, 14, 48),
        "strides_bytes": (9408, 672, 48, 1),
        "block": (2, 5, 6, 32),
        "steps": (1, 2, 2, 1),
        "swizzle": 1,
    }


def test_descriptors_need_a_driver():
    spec = replace(
        SPEC, signature=(("x_desc", str(DescriptorType("i8", (64, 32), 32))),), aligned=frozenset()
    )
    packing = Packing(spec, extra_pointers=0)
    with pytest.raises(InternalError, match="wrong arguments"):
        packing.pack(packing.frame(), [torch.zeros(4, 32, dtype=torch.int8)])


def test_types_that_are_no_descriptors():
    for kind in (
        "*i8",
        "i32",
        "tensordesc<i8[8, 16]>",
        "tensordesc<fp64[8, 16],NVMMASharedLayout(swizzle_byte_width=32, x)>",
    ):
        assert descriptor_type_of(kind) is None
    kind = DescriptorType("i8", (128, 64), 64)
    assert descriptor_type_of(str(kind)) == kind


def with_module(monkeypatch, **functions) -> None:
    module = types.ModuleType("quantrt.kernels.probe.triton_kernel")
    vars(module).update(functions)
    package = types.ModuleType("quantrt.kernels.probe")
    monkeypatch.setitem(sys.modules, "quantrt.kernels.probe", package)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_outside_the_interpreter_a_cpu_cannot_run_kernels(monkeypatch):
    with_module(monkeypatch, probe=lambda: None)
    with pytest.raises(DeviceError, match="not in its interpreter") as error:
        open_launchers({"k": kernel(90)}, torch.device("cpu"))
    assert "TRITON_INTERPRET=1" in str(error.value)


def test_kernels_that_do_not_exist(monkeypatch):
    for family in ("no_such_family", "../probe", "os.path"):
        with pytest.raises(ModelError, match="no such kernel family"):
            InterpreterLauncher(replace(SPEC, family=family))
    with_module(monkeypatch)
    with pytest.raises(ModelError, match="'probe' has no such kernel"):
        InterpreterLauncher(SPEC)
