# SPDX-License-Identifier: Apache-2.0
"""A program before tactics are chosen: steps and buffers, shapes by running it, what halves cannot hold."""
