# SPDX-License-Identifier: Apache-2.0
"""Stage 6 of 9: Model + Stats + target rules -> QuantizedModel. An integer type for every quantized edge."""
