# SPDX-License-Identifier: Apache-2.0
"""Zero points taken off codes and their sums, inside any kernel. Not a kernel of its own."""
