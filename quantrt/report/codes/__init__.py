# SPDX-License-Identifier: Apache-2.0
"""An engine's codes against those that its final graph defines, region by region, computed in numpy."""
