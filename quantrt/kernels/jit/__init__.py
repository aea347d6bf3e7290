# SPDX-License-Identifier: Apache-2.0
"""What kernels are compiled from beside their own file, a file per idea; most serve several families."""
