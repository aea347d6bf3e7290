# SPDX-License-Identifier: Apache-2.0
"""Boxes of output pixels that are tiles of a convolution. Not a kernel of its own."""
