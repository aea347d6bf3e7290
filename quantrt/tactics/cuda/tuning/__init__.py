# SPDX-License-Identifier: Apache-2.0
"""The tactic of every workload: listed ones pruned, what they take estimated or timed, the fastest chosen."""
