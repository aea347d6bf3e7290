# SPDX-License-Identifier: Apache-2.0
"""Attention in floats and over codes: our kernels, and torch's."""
