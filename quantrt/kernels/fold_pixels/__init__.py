# SPDX-License-Identifier: Apache-2.0
"""Images of few channels whose neighbouring pixels become channels, for convolutions with strides."""
