# SPDX-License-Identifier: Apache-2.0
"""What regions are built around, and the formulas that these compute: a file per kind."""
