# SPDX-License-Identifier: Apache-2.0
"""What tactics compute with: floats or codes, on which grids, in which layouts; each region as a workload."""
