# SPDX-License-Identifier: Apache-2.0
"""What QuantRT does for models that live in torch: training, and pipelines of diffusion models.

Nothing below this package needs torch to build or to run an engine on a CPU; import what you need from its
modules.
"""
