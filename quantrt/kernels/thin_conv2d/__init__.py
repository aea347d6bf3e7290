# SPDX-License-Identifier: Apache-2.0
"""Convolutions of at most four channels, such as the first of a network."""
