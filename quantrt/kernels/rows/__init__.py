# SPDX-License-Identifier: Apache-2.0
"""outputs = expression(inputs), element by element, with reductions over rows: one kernel for all of them."""
