# SPDX-License-Identifier: Apache-2.0
"""Gluon kernels run in Python: their own source, on numpy, with every group of warps a thread of its own.

There is no interpreter for Gluon. What a kernel calls is replaced here by functions that do the same on whole
blocks; layouts are left out, for they decide where an element lies and not which it is. Groups of warps,
copies and products run in a random order, one event at a time, and what a GPU would not notice is an error:
memory that is overwritten while a product reads it, read before it is there, a barrier that nobody completes.

What the compiler makes of the source is not seen here: variables are Python's.
"""

import importlib.util
import math
import random
import threading
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
from triton.language import constexpr

__all__ = ["Descriptor", "Pointer", "Rules", "altered", "four_raw_floats", "run_program"]


class RulesError(AssertionError):
    """Something a kernel may not do."""


Rules = RulesError


class Scalar(int):
    """An integer with the methods of one in a kernel."""

    def to(self, dtype):
        return self


def _scalar_method(name):
    def method(a, b):
        if isinstance(b, np.ndarray):
            return NotImplemented
        return Scalar(getattr(int, name)(a, int(b)))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "xor", "rshift"):
    setattr(Scalar, f"__{_name}__", _scalar_method(f"__{_name}__"))
    setattr(Scalar, f"__r{_name}__", _scalar_method(f"__r{_name}__"))


class Block(np.ndarray):
    """A tensor in registers."""

    type = types.SimpleNamespace(layout=None)

    def permute(self, order):
        return self.transpose(order)

    def to(self, dtype, bitcast=False):
        return self.view(dtype) if bitcast else self.astype(array_type(dtype))


class Element:
    """An element type; equal to others of its name."""

    def __init__(self, name: str, array=None, bits: int = 0) -> None:
        self.name, self.array, self.primitive_bitwidth = name, array, bits

    def __eq__(self, other) -> bool:
        return isinstance(other, Element) and other.name == self.name

    __hash__ = None


def array_type(dtype):
    """Numpy's type of a kernel's."""
    return dtype.array if isinstance(dtype, Element) else dtype


def block(array) -> Block:
    return np.asarray(array).view(Block)


class Pointer:
    """Into flat memory."""

    def __init__(self, memory: np.ndarray, offsets=0) -> None:
        self.memory, self.offsets = memory, offsets
        element = Element("int8", memory.dtype, 8) if memory.dtype == np.int8 else memory.dtype
        self.dtype = types.SimpleNamespace(element_ty=element)

    def to(self, dtype):
        return Pointer(self.memory.view(array_type(dtype)), self.offsets)

    def __add__(self, offset):
        return Pointer(self.memory, self.offsets + np.asarray(offset))


def four_raw_floats(words):
    """As of kernels/codes: four codes side by side in each int32, and 2**23 + 128 more."""
    codes = np.ascontiguousarray(words).view(np.int8).reshape(*words.shape, 4).astype(np.float32)
    return tuple(block(codes[..., i] + np.float32(2**23 + 128)) for i in range(4))


class Descriptor:
    """A tensor that is copied in blocks.

    Args:
        bits: of an element as the kernel sees it, where that is another than numpy's.
        is_constant: whether no kernel writes it.
    """

    def __init__(
        self,
        tensor: np.ndarray,
        shape: tuple[int, ...],
        bits: int | None = None,
        is_constant: bool = False,
    ) -> None:
        self.tensor, self.block = tensor, shape
        self.is_constant = is_constant
        self.dtype = Element(str(tensor.dtype), tensor.dtype, bits or 8 * tensor.itemsize)
        self.layout = None
        nbytes = math.prod(shape) * tensor.itemsize
        self.block_type = types.SimpleNamespace(nbytes=nbytes, shape=list(shape))

    def read(self, *place: int) -> np.ndarray:
        """A block, zeros beyond the tensor."""
        found = np.zeros(self.block, self.tensor.dtype)
        spans = zip(place, self.block, strict=True)
        part = self.tensor[tuple(slice(start, start + size) for start, size in spans)]
        found[tuple(map(slice, part.shape))] = part
        return found


class Barrier:
    """An mbarrier. A wait for a parity is over when the phase before the current one has that parity."""

    def __init__(self) -> None:
        self.count = self.pending = self.bytes = self.phase = 0

    def settle(self) -> None:
        if self.pending < 0:
            raise RulesError("more arrivals than a barrier counts")
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count


class Slot:
    """A block of shared memory.

    Args:
        reads_once: see `run_program`.
    """

    def __init__(self, shape, dtype: Element, reads_once: bool) -> None:
        self.data = np.zeros(shape, dtype.array)
        self.dtype = dtype
        self.readers = 0
        self.reads_once = reads_once
        self.is_full = self.is_coming = False

    @property
    def view(self):
        return View(self, lambda data: data)

    @property
    def shape(self):
        return self.data.shape

    def permute(self, order):
        return self.view.permute(order)

    def reshape(self, shape):
        return self.view.reshape(shape)

    def slice(self, start, length):
        return self.view.slice(start, length)

    def _reinterpret(self, dtype, shape, layout):
        return self.view.reshape(shape)

    def load(self, layout):
        if not self.is_full:
            raise RulesError("a block is read before it is there")
        self.is_full = not self.reads_once
        return block(self.data.copy())


class View:
    """A block of shared memory in another shape."""

    def __init__(self, slot: Slot, look) -> None:
        self.slot, self.look, self.dtype = slot, look, slot.dtype

    @property
    def data(self):
        return self.look(self.slot.data)

    @property
    def shape(self):
        return self.data.shape

    @property
    def view(self):
        return self

    def permute(self, order):
        return View(self.slot, lambda data: self.look(data).transpose(order))

    def reshape(self, shape):
        return View(self.slot, lambda data: self.look(data).reshape(shape))

    def slice(self, start, length):
        return View(self.slot, lambda data: self.look(data)[start : start + length])

    def load(self, layout):
        return block(self.look(self.slot.load(layout)))


class Product:
    """Sums that a product is still added to: they can be nothing but added to, or waited for."""

    def __init__(self, value: Block, slots: list[Slot]) -> None:
        self.value, self.slots, self.dtype = value, slots, value.dtype
        self.is_done = False


class Ring:
    """Slots, or barriers."""

    layout = None

    def __init__(self, dtype, shape, reads_once: bool) -> None:
        self.dtype = dtype
        is_barrier = getattr(dtype, "name", "") == "int64"
        slots = range(shape[0])
        self.items = [Barrier() if is_barrier else Slot(shape[1:], dtype, reads_once) for _ in slots]

    def index(self, number):
        return self.items[int(number)]


class Machine:
    """One program: its groups of warps and what goes on beside them, one event at a time in random order."""

    def __init__(self, seed: int, programs: int, program: int) -> None:
        self.random = random.Random(seed)
        self.programs, self.program = programs, program
        self.copies: list[Callable[[], None]] = []
        self.control = threading.Semaphore(0)
        self.groups: list[Group] = []
        self.failure: BaseException | None = None
        self.awaits = False
        """Whether groups say when kernels before this one are done."""

    def run(self, parts) -> None:
        self.groups = [Group(self, function, arguments) for function, arguments in parts]
        while not all(group.is_done for group in self.groups) and self.failure is None:
            ready: list = [group for group in self.groups if not group.is_done and group.is_over()]
            ready += self.copies
            if not ready:
                self.failure = RulesError("every group of warps waits, and nothing is on its way")
                break
            chosen = self.random.choice(ready)
            if isinstance(chosen, Group):
                chosen.step()
            else:
                self.copies.remove(chosen)
                chosen()
        if self.failure is not None:
            raise self.failure
        if self.copies:
            raise RulesError("a copy that nobody waits for")


class Group:
    """Some warps with one task."""

    def __init__(self, machine: Machine, function, arguments) -> None:
        self.machine = machine
        self.is_done = self.has_awaited = False
        self.is_over: Callable[[], bool] = lambda: True
        self.baton = threading.Semaphore(0)
        self.unfinished: list[Product] = []
        self.thread = threading.Thread(target=self._work, args=(function, arguments), daemon=True)
        self.thread.start()

    def _work(self, function, arguments) -> None:
        self.baton.acquire()
        try:
            function(*arguments)
            if self.unfinished:
                raise RulesError("products that nobody waits for")
        except BaseException as error:  # noqa: BLE001  handed to the thread that started this one
            self.machine.failure = error
        self.is_done = True
        self.machine.control.release()

    def step(self) -> None:
        self.baton.release()
        self.machine.control.acquire()

    def pause(self, is_over: Callable[[], bool] = lambda: True) -> None:
        """Let others go on until the condition holds."""
        self.is_over = is_over
        self.machine.control.release()
        self.baton.acquire()


def altered(module: types.ModuleType, right: str, wrong: str, folder: Path) -> types.ModuleType:
    """A kernel's module with a part of its source that is there replaced by another."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert right in source
    path = folder / "wrong_kernel.py"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("wrong_kernel", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run_program(
    module,
    name: str,
    arguments,
    *,
    seed: int,
    program: int | tuple[int, ...],
    programs: int,
    others: tuple[types.ModuleType, ...] = (),
    reads_once: bool = True,
    is_one_group: bool = False,
    **replaced,
) -> None:
    """Run one program of a kernel.

    Args:
        module: with the kernel and what it calls, decorated by gluon.jit.
        others: modules with more that it calls.
        reads_once: whether every block is read once, so that one that is not read is a mistake.
        is_one_group: the kernel has one group of warps, which does everything.
        replaced: functions to take instead of what the module imports from elsewhere.

    Raises:
        RulesError: a deadlock, or memory used out of turn.
    """
    machine = Machine(seed, programs, program)
    scope = {}
    for part in (*others, module):
        scope.update(vars(part))
    machine.awaits = hasattr(module, "await_kernels_before")
    names = {part.__name__ for part in (*others, module)}
    for part in others:  # one that was altered is imported by nobody
        own = {key: value for key, value in vars(part).items() if _home_of(value) == part.__name__}
        scope.update({key: value for key, value in own.items() if _home_of(scope[key]) not in names})
    for key, value in list(scope.items()):
        if isinstance(value, constexpr):
            scope[key] = value.value
        function = getattr(value, "fn", None)
        if isinstance(function, types.FunctionType) and function.__module__ in names:
            scope[key] = types.FunctionType(function.__code__, scope, key, function.__defaults__)
    scope["range"] = lambda *limits: map(Scalar, range(*limits))
    scope.update(_language(machine, reads_once), **replaced)
    if is_one_group:
        machine.run([(scope[name], arguments)])
    else:
        scope[name](*arguments)


def _home_of(value) -> str:
    """The module of a kernel's function; empty for anything else."""
    return getattr(getattr(value, "fn", None), "__module__", "")


def _language(machine: Machine, reads_once: bool) -> dict:
    def current() -> Group:
        return next(group for group in machine.groups if group.thread is threading.current_thread())

    def await_before():
        if machine.groups:
            current().pause()
            current().has_awaited = True

    def check_awaited(what):
        if machine.awaits and machine.groups and not current().has_awaited:
            raise RulesError(f"{what} before kernels that may write it are done")

    def init(barrier, count):
        barrier.count = barrier.pending = count

    def wait(barrier, parity):
        current().pause(lambda: (barrier.phase - 1) % 2 == parity)

    def arrive(barrier, count=1, pred=True):
        current().pause()
        if pred:
            barrier.pending -= count
            barrier.settle()

    def expect(barrier, size, pred=True):
        current().pause()
        if pred:
            barrier.bytes += size
            barrier.pending -= 1
            barrier.settle()

    def copy(descriptor, place, barrier, slot, pred=True):
        if not pred:
            return
        slot = slot.slot if type(slot) is View else slot
        if not descriptor.is_constant:
            check_awaited("a block is asked for")
        if slot.is_coming:
            raise RulesError("a block is overwritten that is still on its way")
        slot.is_coming = True

        if not reads_once:
            slot.is_full = False

        def land():
            if slot.readers or slot.is_full:
                raise RulesError("a block is overwritten before it was read")
            slot.data[...] = descriptor.read(*map(int, place)).reshape(slot.data.shape)
            slot.is_coming, slot.is_full = False, True
            barrier.bytes -= descriptor.block_type.nbytes
            barrier.settle()

        machine.copies.append(land)
        current().pause()

    def multiply(x, w, sums, use_acc=True, is_async=False):
        group = current()
        factors = [factor.view for factor in (x, w) if isinstance(factor, Slot | View)]
        slots = [factor.slot for factor in factors]
        if not all(slot.is_full for slot in slots):
            raise RulesError("a block is read before it is there")
        for slot in slots:
            slot.readers += 1
        before = sums.value if isinstance(sums, Product) else sums
        left = x.view.data if isinstance(x, Slot | View) else x
        product = left.astype(before.dtype) @ w.view.data.astype(before.dtype)
        begun = Product(block(before + product if use_acc else product), slots)
        group.unfinished.append(begun)
        group.pause()
        return begun

    def finish(left, deps):
        group = current()
        group.pause()
        while len(group.unfinished) > left:
            done = group.unfinished.pop(0)
            done.is_done = True
            for slot in done.slots:
                slot.readers -= 1
                slot.is_full = slot.is_full and not reads_once
        found = tuple(product.value if product.is_done else product for product in deps)
        return found if len(found) > 1 else found[0]

    def allocate(dtype, shape, layout, value=None):
        if value is None:
            return Ring(dtype, shape, reads_once)
        element = dtype if isinstance(dtype, Element) else Element("float32", dtype, 32)
        slot = Slot(shape, element, reads_once=False)
        slot.data[...] = value
        slot.is_full = True
        return slot

    def load(pointer, mask=True, other=0):
        check_awaited("a number is read")
        if np.ndim(pointer.offsets) == 0 and pointer.memory.dtype.kind == "i":
            return Scalar(pointer.memory[pointer.offsets])
        offsets, mask = np.broadcast_arrays(pointer.offsets, mask)
        return block(np.where(mask, pointer.memory[np.where(mask, offsets, 0)], other))

    def store(pointer, value, mask=True):
        check_awaited("memory is written")
        offsets, value, mask = np.broadcast_arrays(pointer.offsets, value, mask)
        pointer.memory[offsets[mask]] = value[mask]

    def where(condition, a, b):
        if isinstance(condition, np.ndarray):
            return block(np.where(condition, a, b))
        return a if condition else b

    names = {
        "constexpr": None,
        "int32": np.int32,
        "float32": np.float32,
        "int8": Element("int8"),
        "pointer_type": lambda element: element,
        "int64": Element("int64", np.int64),
        "allocate_shared_memory": allocate,
        "warp_specialize": lambda parts, warps, registers: machine.run(parts),
        "static_range": range,
        "static_assert": lambda condition: None,
        "program_id": lambda axis: Scalar(np.atleast_1d(machine.program)[axis]),
        "num_programs": lambda axis: Scalar(machine.programs),
        "cdiv": lambda a, b: Scalar(-(-a // b)),
        "minimum": lambda a, b: np.minimum(a, b) if isinstance(a, Block) else Scalar(min(a, b)),
        "maximum": lambda a, b: np.maximum(a, b) if isinstance(a, Block) else Scalar(max(a, b)),
        "where": where,
        "zeros": lambda shape, dtype, layout: block(np.full(shape, 77, dtype)),
        "full": lambda shape, value, dtype, layout: block(np.full(shape, value, dtype)),
        "arange": lambda start, end, layout: block(np.arange(start, end)),
        "fma": lambda a, b, c: block((a.astype(np.float64) * b + c).astype(np.float32)),
        "max": lambda x, axis: block(x.max(axis)),
        "sum": lambda x, axis: block(x.sum(axis)),
        "rsqrt": lambda x: block(1 / np.sqrt(x)),
        "BlockedLayout": lambda *options: None,
        "NVMMASharedLayout": lambda *options: None,
        "SwizzledSharedLayout": lambda *options: None,
        "SliceLayout": lambda axis, layout: None,
        "NVMMADistributedLayout": lambda **options: None,
        "DistributedLinearLayout": lambda **options: None,
        "DotOperandLayout": lambda **options: None,
        "join": lambda a, b: block(np.stack((a, b), axis=-1)),
        "split": lambda x: (x[..., 0], x[..., 1]),
        "convert_layout": lambda x, layout, assert_trivial=False: x,
        "thread_barrier": lambda: None,
        "load": load,
        "store": store,
    }
    language = types.SimpleNamespace(**names)
    return {
        "gl": language,
        "mbarrier": types.SimpleNamespace(
            init=init, wait=wait, arrive=arrive, expect=expect, MBarrierLayout=lambda: None
        ),
        "tma": types.SimpleNamespace(async_copy_global_to_shared=copy),
        "warpgroup_mma": multiply,
        "warpgroup_mma_wait": finish,
        "fence_async_shared": lambda: None,
        "await_kernels_before": await_before,
        "part_layout": lambda run, warps: types.SimpleNamespace(shape=[16 * warps, 4 * run]),
    }
