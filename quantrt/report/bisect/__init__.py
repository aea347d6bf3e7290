# SPDX-License-Identifier: Apache-2.0
"""From a failure of a whole model to the few nodes that show it."""
