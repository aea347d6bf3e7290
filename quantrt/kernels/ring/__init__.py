# SPDX-License-Identifier: Apache-2.0
"""Tiles of programs that stay, and the stages of their rings. Not a kernel of its own."""
