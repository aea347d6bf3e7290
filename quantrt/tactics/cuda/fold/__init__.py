# SPDX-License-Identifier: Apache-2.0
"""Regions computed together with a neighbour, so that nothing between them is stored or copied."""
