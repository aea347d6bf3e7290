# SPDX-License-Identifier: Apache-2.0
"""Operators that look at all elements along an axis: sums, statistics, orders."""
