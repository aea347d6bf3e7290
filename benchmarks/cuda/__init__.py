# SPDX-License-Identifier: Apache-2.0
"""What benchmarks on an NVIDIA GPU share, and the cases of some."""
