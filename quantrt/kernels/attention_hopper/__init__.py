# SPDX-License-Identifier: Apache-2.0
"""Attention on compute capability 9.0 with products of codes: loading, multiplying and softmax at once."""
