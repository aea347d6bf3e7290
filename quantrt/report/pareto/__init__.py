# SPDX-License-Identifier: Apache-2.0
"""A front of time against noise: its picture, and a page of it."""
