# SPDX-License-Identifier: Apache-2.0
"""The graph as every stage sees it: thin over onnx-ir."""
