# SPDX-License-Identifier: Apache-2.0
"""Scripts that measure what the results pages quote; run from the root with `python -m benchmarks.NAME`.

Folders hold what several of them share: networks, tasks, other tools, and the pages that they write.
"""
