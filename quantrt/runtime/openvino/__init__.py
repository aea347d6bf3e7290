# SPDX-License-Identifier: Apache-2.0
"""Engines that OpenVINO runs."""
