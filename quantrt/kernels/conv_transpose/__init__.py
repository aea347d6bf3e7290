# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(transposed convolution of x) whose windows do not overlap: products, spread out."""
