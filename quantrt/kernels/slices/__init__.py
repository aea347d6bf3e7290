# SPDX-License-Identifier: Apache-2.0
"""Consumers of kernels/gemm_hopper that finish a tile in slices. Not a kernel of its own."""
