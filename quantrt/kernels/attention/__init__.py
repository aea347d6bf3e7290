# SPDX-License-Identifier: Apache-2.0
"""Attention over blocks of keys, its scores kept on the chip."""
