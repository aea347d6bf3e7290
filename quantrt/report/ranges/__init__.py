# SPDX-License-Identifier: Apache-2.0
"""What is in calibrated ranges and caches, drawn, compared, and held against a model."""
