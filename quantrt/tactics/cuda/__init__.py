# SPDX-License-Identifier: Apache-2.0
"""Stage 4 on a GPU: for each region the ways to compute it, checked against the reference, timed, chosen."""
