# SPDX-License-Identifier: Apache-2.0
"""What is wrong, or of no use, in QuantizeLinear and DequantizeLinear of a model: told, not changed."""
