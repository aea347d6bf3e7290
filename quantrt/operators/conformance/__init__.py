# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend tests against quantrt.operators: `python -m quantrt.operators.conformance --device cuda`."""
