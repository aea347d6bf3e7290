# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(maximum or mean over windows of x, or over whole images), channels-last."""
