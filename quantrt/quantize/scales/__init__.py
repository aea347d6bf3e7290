# SPDX-License-Identifier: Apache-2.0
"""The numbers of a grid: scales and zero points, a weight's scale by least squares, and codes by them."""
