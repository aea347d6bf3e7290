# SPDX-License-Identifier: Apache-2.0
"""What will hurt a model in 8 bits or fp16, from its graph and a few samples, before anything is built."""
