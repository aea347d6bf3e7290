# SPDX-License-Identifier: Apache-2.0
"""Timed inferences: what goes in, what comes out, and how far it is from references."""
