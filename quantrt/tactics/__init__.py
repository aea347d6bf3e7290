# SPDX-License-Identifier: Apache-2.0
"""Stage 4 of 9: candidates -> timings. What runs, how fast, on this machine."""
