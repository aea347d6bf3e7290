# SPDX-License-Identifier: Apache-2.0
"""Other tools, behind one interface."""
