# SPDX-License-Identifier: Apache-2.0
"""Options that verbs share, and what they open."""
