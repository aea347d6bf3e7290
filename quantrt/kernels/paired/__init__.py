# SPDX-License-Identifier: Apache-2.0
"""Programs that share a multiprocessor with another, and load for themselves. Not a kernel of its own."""
