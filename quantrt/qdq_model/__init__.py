# SPDX-License-Identifier: Apache-2.0
"""A standard ONNX model with Q/DQ nodes, within an accuracy budget where there is one."""
