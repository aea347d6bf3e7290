# SPDX-License-Identifier: Apache-2.0
"""Models that were quantized before: what their QuantizeLinear and DequantizeLinear nodes say."""
