# SPDX-License-Identifier: Apache-2.0
"""Nodes as instructions of expressions."""
