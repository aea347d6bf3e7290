# SPDX-License-Identifier: Apache-2.0
"""What nodes are for, told by the nodes around them and not by names: attention, gates, tables."""
