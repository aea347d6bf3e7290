# SPDX-License-Identifier: Apache-2.0
"""The GPU itself: its facts, its driver and libraries, machine code ready to launch."""
