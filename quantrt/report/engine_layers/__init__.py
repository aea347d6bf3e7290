# SPDX-License-Identifier: Apache-2.0
"""What an engine consists of, layer by layer, whichever library runs it, and how long each layer takes."""
