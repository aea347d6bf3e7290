# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(norm(x)[M, K] @ w[N, K]^T): a product that normalizes the rows it reads."""
