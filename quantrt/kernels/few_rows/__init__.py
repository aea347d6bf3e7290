# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) of few rows, whose weights come ahead."""
