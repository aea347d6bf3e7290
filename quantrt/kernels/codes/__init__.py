# SPDX-License-Identifier: Apache-2.0
"""From floats to codes and back, inside any kernel. Not a kernel of its own."""
