# SPDX-License-Identifier: Apache-2.0
"""What kernels of attention that walk over blocks of keys have in common, in Triton."""
