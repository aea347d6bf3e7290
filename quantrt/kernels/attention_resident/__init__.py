# SPDX-License-Identifier: Apache-2.0
"""Attention on compute capability 9.0 that reads the keys and values of a head once, where there is room."""
