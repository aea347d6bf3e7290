# SPDX-License-Identifier: Apache-2.0
"""What is told of a model and of GPUs before anything is built."""
