# SPDX-License-Identifier: Apache-2.0
"""Sums as wgmma hands them out, finished and stored: part of a kernel, not one of its own."""
