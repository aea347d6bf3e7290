# SPDX-License-Identifier: Apache-2.0
"""From a tensor's histogram to the range that is quantized, by each of the methods."""
