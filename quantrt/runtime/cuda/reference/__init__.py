# SPDX-License-Identifier: Apache-2.0
"""What formulas, expressions and graphs mean, in torch: what kernels are held against."""
