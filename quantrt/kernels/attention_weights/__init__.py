# SPDX-License-Identifier: Apache-2.0
"""Scores of attention as wgmma hands them out, turned into the weights of values: part of a kernel."""
