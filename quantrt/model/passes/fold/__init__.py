# SPDX-License-Identifier: Apache-2.0
"""Passes that compute what is constant, and put it where it is needed."""
