# SPDX-License-Identifier: Apache-2.0
"""What OpenVINO is given: graphs in the forms that its kernels are fast and right for, and its own IR."""
