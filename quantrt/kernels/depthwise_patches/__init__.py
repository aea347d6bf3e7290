# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(conv(x, w)) over channels-last images, each channel by itself, several pixels to a thread."""
