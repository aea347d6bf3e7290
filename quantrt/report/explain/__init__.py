# SPDX-License-Identifier: Apache-2.0
"""Why an engine takes the time and the space that it takes, layer by layer."""
