# SPDX-License-Identifier: Apache-2.0
"""Attention over few keys on compute capability 9.0: two programs to a multiprocessor, of little code."""
