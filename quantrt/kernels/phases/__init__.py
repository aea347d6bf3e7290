# SPDX-License-Identifier: Apache-2.0
"""Phases of convolutions whose pixels are repeated. Not a kernel of its own."""
