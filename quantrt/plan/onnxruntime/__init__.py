# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime is given: graphs in the forms that its kernels are fast for, and weights beside them."""
