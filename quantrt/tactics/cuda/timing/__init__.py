# SPDX-License-Identifier: Apache-2.0
"""One workload on a device: its tactics opened, checked, timed; timings and machine code kept in files."""
