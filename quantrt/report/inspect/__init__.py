# SPDX-License-Identifier: Apache-2.0
"""What is in a file: a model, its Q/DQ pairs, an engine."""
