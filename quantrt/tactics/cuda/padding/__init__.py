# SPDX-License-Identifier: Apache-2.0
"""Padding taken out of a program: the tokens of a batch are the first rows of its tensors, behind each other.

A tensor of tokens, [B, S, ...] as exported, keeps its shape. Its B * S rows are in another order: those that
the mask keeps first, sample by sample, then the others, which nothing needs. See docs/decisions/0014.
"""
