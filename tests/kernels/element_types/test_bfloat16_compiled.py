# SPDX-License-Identifier: Apache-2.0
"""Every family of kernels on bfloat16 compiles for every generation of GPUs that has it."""

import numpy as np

from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels.element_types.test_bfloat16_interpreter import CASES, FAMILIES, H200, case_of

CAPABILITIES = (80, 86, 89, 90, 100, 120)


def kernels_of(name: str, rng: np.random.Generator) -> dict[str, KernelSpec]:
    """One of each function of the family."""
    workload, _, _ = case_of(name, rng)
    tactics = [row for row in list_tactics(workload, H200) if isinstance(row, Tactic)]
    specs = [spec for tactic in tactics for draft in tactic.drafts for spec in draft.kernels]
    family = FAMILIES.get(name, name)
    return {f"{name}: {spec.function}": spec for spec in reversed(specs) if spec.family == family}


def test_every_family_compiles(compile_kernels, rng: np.random.Generator):
    specs = {name: spec for case in CASES for name, spec in kernels_of(case, rng).items()}
    assert len(specs) >= len(CASES)
    found = compile_kernels(list(specs.values()), CAPABILITIES)
    for name, spec in specs.items():
        kernel = found[spec]
        assert isinstance(kernel, CompiledKernel), (name, kernel)
        assert set(kernel.cubins) == set(CAPABILITIES), name
