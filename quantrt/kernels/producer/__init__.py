# SPDX-License-Identifier: Apache-2.0
"""The warp that loads the blocks of a product. Not a kernel of its own."""
