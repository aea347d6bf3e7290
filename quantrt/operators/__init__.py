# SPDX-License-Identifier: Apache-2.0
"""What every ONNX operator computes, written in torch: the float and integer reference on any torch device.

    table.py       OPERATORS: operator, first opset, function
    interpret.py   TorchGraph(graph, device).run(inputs): a whole model, node by node
    conformance/   ONNX's own backend node tests against these functions

The other folders hold the functions, a file per family. Every operator is a plain function on torch tensors:
inputs by position (an absent optional input is None), attributes by keyword under their ONNX names.
"""
