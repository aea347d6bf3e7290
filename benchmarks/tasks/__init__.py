# SPDX-License-Identifier: Apache-2.0
"""What models are calibrated and judged on, and the figures of contenders on it, one by one and in pairs."""
