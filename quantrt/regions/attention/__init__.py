# SPDX-License-Identifier: Apache-2.0
"""Attention in the spellings of exporters, as regions."""
