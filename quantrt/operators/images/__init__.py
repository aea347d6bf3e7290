# SPDX-License-Identifier: Apache-2.0
"""Operators over the positions of images: windows, and places that are computed."""
