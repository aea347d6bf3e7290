# SPDX-License-Identifier: Apache-2.0
"""Convolutions, those with a pool behind or a resize in front among them: our kernels, and cuDNN's."""
