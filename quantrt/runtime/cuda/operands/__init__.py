# SPDX-License-Identifier: Apache-2.0
"""What runners hand to kernels: images, scores, epilogues and nodes, read where they lie."""
