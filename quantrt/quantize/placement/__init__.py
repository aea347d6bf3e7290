# SPDX-License-Identifier: Apache-2.0
"""Where a model is quantized: which edges carry codes, by a target's rules and as the user wants it."""
