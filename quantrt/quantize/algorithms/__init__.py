# SPDX-License-Identifier: Apache-2.0
"""Algorithms that change a float model's constants so that quantizing it hurts less; one file each."""
