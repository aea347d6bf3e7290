# SPDX-License-Identifier: Apache-2.0
"""The mixed candidate of a build: 8 bits where they are fast and harmless, floats elsewhere."""
