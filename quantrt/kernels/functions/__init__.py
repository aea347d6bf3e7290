# SPDX-License-Identifier: Apache-2.0
"""Functions of blocks that the GPU has no instruction for. Not a kernel of its own."""
