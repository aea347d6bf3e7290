# SPDX-License-Identifier: Apache-2.0
"""Stage 9: what was measured, as JSON-ready data and as tables of at most 100 columns."""
