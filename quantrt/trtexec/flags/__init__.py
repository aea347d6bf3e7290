# SPDX-License-Identifier: Apache-2.0
"""trtexec's flags as a table, and what a command line of them asks for."""
