# SPDX-License-Identifier: Apache-2.0
"""Attention over codes on any GPU whose tensor cores multiply them, in Triton."""
