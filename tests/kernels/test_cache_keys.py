# SPDX-License-Identifier: Apache-2.0
"""What Triton's cache has is found again, whatever else was compiled before in the same process."""

import os
import subprocess
import sys

SCRIPT = """
import sys
from types import SimpleNamespace
from quantrt.kernels.compile import find_function

for name in sys.argv[1:]:
    family, function = name.split(".")
    print(name, find_function(SimpleNamespace(family=family, function=function)).cache_key)
"""
KERNELS = (
    "gemm.gemm",
    "rows.map_rows",
    "conv2d.conv2d",
    "gemm_hopper.gemm_hopper",
    "conv_hopper.conv_hopper",
)
"""In Triton and in Gluon; they share functions for codes, epilogues and expressions."""


def keys(*kernels: str) -> dict[str, str]:
    """Triton's key of each, in a process that asks for them in this order."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", SCRIPT, *kernels]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(line.split() for line in done.stdout.splitlines())


def test_keys_do_not_depend_on_the_order_of_kernels():
    found = keys(*KERNELS)
    assert len(found) == len(set(found.values())) == len(KERNELS)
    assert keys(*reversed(KERNELS)) == found
