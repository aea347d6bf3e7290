# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime's operators of its own compute, in operators of the ONNX standard; a file per family."""
