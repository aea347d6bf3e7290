# SPDX-License-Identifier: Apache-2.0
"""What is measured once and solved for any budget: regions, their damages, times and sizes, whole engines."""
