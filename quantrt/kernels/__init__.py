# SPDX-License-Identifier: Apache-2.0
"""GPU kernels, one folder per family: spec.py says what is legal and what it costs, triton_kernel.py runs."""
