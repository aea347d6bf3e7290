# SPDX-License-Identifier: Apache-2.0
"""What trtexec prints and writes, to the letter."""
