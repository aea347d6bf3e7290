# SPDX-License-Identifier: Apache-2.0
"""Sixteen warps that take every tile of a program together. Not a kernel of its own."""
