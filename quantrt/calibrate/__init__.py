# SPDX-License-Identifier: Apache-2.0
"""Stage 2 of 9: Model + data -> Stats. Stream samples into mergeable histograms; choose ranges later."""
