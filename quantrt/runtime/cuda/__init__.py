# SPDX-License-Identifier: Apache-2.0
"""Runs programs in torch's memory and on its streams: eagerly on any device, as CUDA graphs on a GPU."""
