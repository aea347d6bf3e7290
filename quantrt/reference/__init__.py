# SPDX-License-Identifier: Apache-2.0
"""What "right" means: quantized arithmetic in numpy, and metrics without default tolerances."""
