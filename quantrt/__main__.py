# SPDX-License-Identifier: Apache-2.0
"""`python -m quantrt` is the command `quantrt`."""

from __future__ import annotations

import sys

from quantrt.cli.main import entry_point

sys.exit(entry_point())
