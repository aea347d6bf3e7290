# SPDX-License-Identifier: Apache-2.0
"""Calibration caches of other tools, read and written."""
