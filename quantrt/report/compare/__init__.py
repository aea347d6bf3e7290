# SPDX-License-Identifier: Apache-2.0
"""Two models on the same data: how far their outputs, and the tensors inside, are apart."""
