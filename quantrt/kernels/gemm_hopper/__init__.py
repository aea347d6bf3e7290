# SPDX-License-Identifier: Apache-2.0
"""The same products as kernels/gemm on compute capability 9.0: loading, multiplying and finishing at once."""
