# SPDX-License-Identifier: Apache-2.0
"""Queries, keys and values of attention as codes, made where the projection left them."""
