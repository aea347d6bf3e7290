# SPDX-License-Identifier: Apache-2.0
"""Kernels run in Triton's interpreter here; what is compiled is compiled in processes of its own."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel's module is imported
