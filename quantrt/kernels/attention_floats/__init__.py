# SPDX-License-Identifier: Apache-2.0
"""Attention of floats on compute capability 9.0: products of one block run while another is weighed."""
