# SPDX-License-Identifier: Apache-2.0
"""The warps of attention on compute capability 9.0 that have queries."""
