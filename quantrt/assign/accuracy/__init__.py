# SPDX-License-Identifier: Apache-2.0
"""What candidates lose against the float model: by which metric, on which samples, at which batch sizes."""
