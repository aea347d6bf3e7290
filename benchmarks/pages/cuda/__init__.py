# SPDX-License-Identifier: Apache-2.0
"""Those of benchmarks on an NVIDIA GPU."""
