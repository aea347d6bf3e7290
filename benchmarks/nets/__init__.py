# SPDX-License-Identifier: Apache-2.0
"""Networks in plain torch, with random or trained weights."""
