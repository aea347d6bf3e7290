# SPDX-License-Identifier: Apache-2.0
"""Stage 5 of 9: timings + accuracy + budget -> which precision is shipped."""
