# SPDX-License-Identifier: Apache-2.0
"""Operators made of products of matrices."""
