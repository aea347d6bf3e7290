# SPDX-License-Identifier: Apache-2.0
"""How long an engine file takes to load: `python -m benchmarks.cuda_load [--gb 1]`.

Writes an engine of one chain of products with seeded random weights of that size for the library "cuda", and
times, from a warm page cache: opening the file with its checksums, the program, and `quantrt.load`, which
also copies the weights to the GPU and captures nothing. Without a GPU the last is left out. Each is the
median of five.
"""

__all__ = ["make_program"]

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import quantrt
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Fingerprint
from quantrt.plan.plan import ExecOptions, Plan
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.regions.expression import IDENTITY
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import Gemm

WIDTH = 4096
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the loading of an engine for a GPU.")
    parser.add_argument("--gb", type=float, default=1.0, help="size of the weights, in 1e9 bytes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.qrt"
        save_plan(_plan(make_program(round(args.gb * 1e9))), path)
        print(f"engine file     {path.stat().st_size / 1e9:7.3f} GB")
        print(f"load_plan       {_median_s(lambda: load_plan(path)):7.3f} s")
        plan = load_plan(path)
        print(f"program         {_median_s(lambda: program_from_model(plan.model)):7.3f} s")
        if torch.cuda.is_available():
            quantrt.load(path).close()  # the first makes the CUDA context
            print(f"quantrt.load    {_median_s(lambda: quantrt.load(path).close()):7.3f} s")


def make_program(size_bytes: int) -> Program:
    """x[M, 4096] through as many float16 products of 4096 x 4096 as make up `size_bytes`."""
    count = max(1, size_bytes // (2 * WIDTH * WIDTH))
    rng = np.random.default_rng(0)
    plain = IDENTITY
    steps, weights = [], {}
    for number in range(count):
        formula = Gemm((f"g{number}", 0), (f"g{number}", 1), f"w{number}", False, plain)
        options = {"formula": to_json(formula), "outputs": ["float16"]}
        names = (f"x{number}",), (f"x{number + 1}",)
        steps.append(Step("formula", f"g{number}", *names, options, (f"w{number}",)))
        weights[f"w{number}"] = rng.integers(0, 2**14, (WIDTH, WIDTH), np.uint16).view(np.float16)
    return Program(
        inputs=(("x0", "float16"),),
        outputs=(("y", f"x{count}", "float16"),),
        steps=tuple(steps),
        weights=weights,
        kernels={},
    )


def _plan(program: Program) -> Plan:
    return Plan(
        model=program_to_model(program),
        options=ExecOptions(float_precision="fp16"),
        inputs=(TensorSpec("x0", "float16", ("M", WIDTH)),),
        outputs=(TensorSpec("y", "float16", ("M", WIDTH)),),
        precision="fp16",
        layers=(),
        fingerprint=Fingerprint("", ""),
        device={},
    )


def _median_s(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
