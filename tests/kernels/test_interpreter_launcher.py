# SPDX-License-Identifier: Apache-2.0
"""A kernel in Triton's interpreter gets its arguments and constants; in a process of its own, for the mode
is chosen when Triton is imported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, BLOCK: tl.constexpr, y_ptr, N, scale):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    tl.store(y_ptr + offs, x * scale, mask=offs < N)
"""

SCRIPT = """
import sys, types
import torch
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.runtime.cuda.device.launcher import open_launchers
import probe_kernel

sys.modules["quantrt.kernels.probe"] = types.ModuleType("quantrt.kernels.probe")
sys.modules["quantrt.kernels.probe.triton_kernel"] = probe_kernel
signature = (("x_ptr", "*fp32"), ("y_ptr", "*fp32"), ("N", "i32"), ("scale", "fp32"))
spec = KernelSpec("probe", "scaled", signature, frozenset(), (("BLOCK", 16),))
launch = open_launchers({"k": CompiledKernel(spec, "scaled", {}, {})}, torch.device("cpu"))["k"]
for count in (1, 41, 64, 0):
    x, y = torch.randn(count), torch.full((count,), 9.0)
    launch((-(-count // 16), 1, 1), [x, y, count, 0.5])
    assert torch.equal(y, x * 0.5), count
"""


def test_arguments_and_constants_reach_the_kernel(tmp_path: Path):
    (tmp_path / "probe_kernel.py").write_text(KERNEL)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
