# SPDX-License-Identifier: Apache-2.0
"""The steps of a program, opened and passed over: in which memory, by which timers, as which CUDA graph."""
