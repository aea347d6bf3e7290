# SPDX-License-Identifier: Apache-2.0
"""What is known of a graph before any data: sizes, elements of small tensors, what lies where."""
