# SPDX-License-Identifier: Apache-2.0
"""y = epilogue((x - mean) / sqrt(variance + epsilon)) over groups of channels of images, channels-last."""
