# SPDX-License-Identifier: Apache-2.0
"""Expressions inside kernels: not a kernel of its own, but what the epilogue of every family calls."""
