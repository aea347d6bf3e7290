# SPDX-License-Identifier: Apache-2.0
"""Engine files carry machine code: in a process where Triton cannot be imported, all works but a GPU."""

import os
import subprocess
import sys
from pathlib import Path

from quantrt.gpu import gpu_named
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.kernels.compile_all import compile_all
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_to_model
from quantrt.plan.serialize import save_plan
from quantrt.tactics.cuda.memory_bound import rows
from quantrt.tactics.cuda.tactic import Tactic
from tests.plans import make_plan
from tests.unit.tactics.cuda.workload_samples import scaled_rows

WITHOUT_TRITON = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ImportError(f"{name} was imported")
        return None

sys.meta_path.insert(0, Refuse())
"""

LOAD = """
from quantrt.errors import DeviceError
from quantrt.plan.program_json import program_from_model
from quantrt.plan.serialize import load_plan, peek_plan
from quantrt.runtime.cuda.device.launcher import Packing, choose_capability
import quantrt

path = sys.argv[1]
assert peek_plan(path).plan.precision == "int8"
program = program_from_model(load_plan(path).model)
(kernel,) = program.kernels.values()
assert kernel.cubins[choose_capability(kernel, 90)].startswith(b"\\x7fELF")
Packing(kernel.spec, kernel.extra_pointers).frame()
try:
    quantrt.load(path).close()
except DeviceError as error:
    print(error)
assert not [name for name in sys.modules if name.partition(".")[0] == "triton"]
"""

IMPORT_ALL = """
import quantrt.runtime.cuda as cuda

names = []
for module in pkgutil.walk_packages(cuda.__path__, cuda.__name__ + "."):
    importlib.import_module(module.name)
    names.append(module.name)
print(" ".join(names))
assert not [name for name in sys.modules if name.partition(".")[0] == "triton"]
"""


def run_without_triton(code: str, *arguments: str) -> str:
    """What the code prints in a process of its own, with neither Triton nor a compiler to be found."""
    folders = {"PATH": "", "PYTHONPATH": os.pathsep.join(folder or "." for folder in sys.path)}
    environment = {**os.environ, **folders, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRITON + code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled_rows() -> tuple[Tactic, CompiledKernel]:
    """A chain of elementwise operations and its kernel for compute capability 9.0."""
    found = [row for row in rows.list_tactics(scaled_rows(), gpu_named("H200")) if isinstance(row, Tactic)]
    tactic = next(row for row in found if row.drafts[0].kernels)
    spec = tactic.drafts[0].kernels[0]
    kernel = compile_all([spec], [90], workers=1)[spec]
    assert isinstance(kernel, CompiledKernel)
    return tactic, kernel


def test_an_engine_is_read_without_a_compiler_up_to_the_gpu(tmp_path: Path):
    tactic, kernel = compiled_rows()
    draft, workload = tactic.drafts[0], scaled_rows()
    step = Step(
        draft.runner,
        workload.region,
        draft.inputs,
        draft.outputs,
        draft.options,
        tuple(constant.key for constant in draft.constants),
        (kernel_key(kernel.spec),),
    )
    program = Program(
        inputs=tuple((f"in{n}", facts.dtype) for n, facts in enumerate(workload.inputs)),
        outputs=tuple((f"out{n}", f"out{n}", dtype) for n, dtype in enumerate(workload.outputs)),
        steps=(step,),
        weights={constant.key: constant.make() for constant in draft.constants},
        kernels={kernel_key(kernel.spec): kernel},
    )
    specs = tuple(TensorSpec(name, dtype, None) for name, dtype in program.inputs)
    outputs = tuple(TensorSpec(name, dtype, None) for name, _, dtype in program.outputs)
    fields = {"model": program_to_model(program), "inputs": specs, "outputs": outputs, "precision": "int8"}
    path = tmp_path / "model.qrt"
    save_plan(make_plan("onnxruntime", **fields), path)
    told = run_without_triton(LOAD, str(path))
    assert told.startswith("cannot open model.qrt: ")
    assert "sees no device 'cuda'" in told


def test_runners_launchers_and_executor_are_imported_without_triton():
    names = run_without_triton(IMPORT_ALL).split()
    assert {"quantrt.runtime.cuda.executor", "quantrt.runtime.cuda.device.launcher"} <= set(names)
    assert {f"quantrt.runtime.cuda.runners.{name}" for name in ("gemm", "rows", "conv2d")} <= set(names)
