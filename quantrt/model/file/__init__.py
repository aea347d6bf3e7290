# SPDX-License-Identifier: Apache-2.0
"""ONNX files, which are hostile: read, checked and mapped without a copy, and written."""
