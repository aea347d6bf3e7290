# SPDX-License-Identifier: Apache-2.0
"""What steps call: one module per runner, each with `open_runner(step, assets) -> Runner`."""
