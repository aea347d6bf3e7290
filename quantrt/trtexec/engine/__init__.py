# SPDX-License-Identifier: Apache-2.0
"""What flags about a build come to for QuantRT's builder, and the engine."""
