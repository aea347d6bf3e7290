# SPDX-License-Identifier: Apache-2.0
"""trtexec's command line, text and JSON over QuantRT's builder and runtime."""
