# SPDX-License-Identifier: Apache-2.0
"""Stage 1 of 9: path -> Model. Read an ONNX file, check it, make it canonical."""
