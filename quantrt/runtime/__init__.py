# SPDX-License-Identifier: Apache-2.0
"""Stage 8 of 9: Plan + inputs -> outputs."""
