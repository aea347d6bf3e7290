# SPDX-License-Identifier: Apache-2.0
"""How an engine was built and why so: what a build reports, as data and as tables."""
