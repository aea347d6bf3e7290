# SPDX-License-Identifier: Apache-2.0
"""The pages of results, one file per benchmark."""
