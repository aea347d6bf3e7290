# SPDX-License-Identifier: Apache-2.0
"""y = relu(q) (relu(k)^T v) / (relu(q) sum(relu(k)) + epsilon): attention without a softmax."""
