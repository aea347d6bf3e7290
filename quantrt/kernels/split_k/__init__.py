# SPDX-License-Identifier: Apache-2.0
"""Products whose sums are cut in parts, for more programs than there are tiles."""
