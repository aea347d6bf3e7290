# SPDX-License-Identifier: Apache-2.0
"""Products with a weight: our kernels, and cuBLASLt's."""
