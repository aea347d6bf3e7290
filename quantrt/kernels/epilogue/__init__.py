# SPDX-License-Identifier: Apache-2.0
"""The last part of every product: its expression, and the stores. Not a kernel of its own."""
