# SPDX-License-Identifier: Apache-2.0
"""From tables and a budget to a precision for every region."""
