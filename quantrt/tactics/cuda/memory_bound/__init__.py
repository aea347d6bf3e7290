# SPDX-License-Identifier: Apache-2.0
"""What moves more bytes than it computes: expressions over rows, norms of groups, pools, resizing, Concat."""
