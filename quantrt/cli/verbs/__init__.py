# SPDX-License-Identifier: Apache-2.0
"""One thin file per verb, over the library's stages."""
