# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side, copied into one."""
