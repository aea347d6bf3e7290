# SPDX-License-Identifier: Apache-2.0
"""Images of codes with their borders, for convolutions whose copies of padding would be of zeros."""
