# SPDX-License-Identifier: Apache-2.0
"""Passes to forms that a GPU likes: fewer and wider products, and nothing moved that need not be."""
