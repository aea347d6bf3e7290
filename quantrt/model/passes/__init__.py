# SPDX-License-Identifier: Apache-2.0
"""The steps of canonicalization: one file each, edits the graph in place, returns the number of changes."""
