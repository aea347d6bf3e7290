# SPDX-License-Identifier: Apache-2.0
"""A first layer and the max pool behind it, in one kernel of compute capability 9.0."""
