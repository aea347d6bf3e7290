# SPDX-License-Identifier: Apache-2.0
"""Scores and sums of attention as wgmma hands them out, weighed, rounded and stored: part of a kernel."""
