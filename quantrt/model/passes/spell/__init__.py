# SPDX-License-Identifier: Apache-2.0
"""Passes that write the same graph in the operators of one opset, without functions and Constant nodes."""
