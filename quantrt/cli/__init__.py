# SPDX-License-Identifier: Apache-2.0
"""The command line: one thin file per verb over the library's stages."""
