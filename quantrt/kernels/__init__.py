# SPDX-License-Identifier: Apache-2.0
"""GPU kernels, one folder per family: spec.py says what is legal and what it costs, triton_kernel.py runs.

jit/ has functions that kernels call, most of several families, and no kernel of its own.
"""
