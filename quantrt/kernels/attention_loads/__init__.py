# SPDX-License-Identifier: Apache-2.0
"""What a program of attention asks the copy engine for by itself. Not a kernel of its own."""
