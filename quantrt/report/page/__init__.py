# SPDX-License-Identifier: Apache-2.0
"""One HTML page about an engine, or about two side by side."""
