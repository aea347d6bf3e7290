# SPDX-License-Identifier: Apache-2.0
"""Operators that make, move and choose tensors, or run subgraphs."""
