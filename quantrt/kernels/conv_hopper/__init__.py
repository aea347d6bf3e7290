# SPDX-License-Identifier: Apache-2.0
"""The same convolutions as kernels/conv2d on compute capability 9.0: windows are copied, not addressed."""
