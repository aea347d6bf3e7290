# SPDX-License-Identifier: Apache-2.0
"""Three models on the same samples: float, fake-quantized, compiled; and which layers make the difference."""
