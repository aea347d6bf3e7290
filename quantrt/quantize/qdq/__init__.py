# SPDX-License-Identifier: Apache-2.0
"""Quantized models written as ONNX: Q/DQ pairs, what runtimes make of them, layers switched on and off."""
