# SPDX-License-Identifier: Apache-2.0
"""Products of halves with weights in 4 bits, in groups of inputs."""
