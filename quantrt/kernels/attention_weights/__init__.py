# SPDX-License-Identifier: Apache-2.0
"""Weights of attention from its scores, where wgmma leaves them: part of a kernel."""
