# SPDX-License-Identifier: Apache-2.0
"""A compiled OpenVINO model again, on one thread per run and with as many runs at once as there are cores.

Threads that share a run wait for each other between layers, looking for work; one alone takes less of the
processor for the same outputs, bit for bit. What was compiled is exported and imported, which is quicker than
compiling: graphs are rewritten no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from quantrt.runtime.openvino.executor import CompiledVariant, OpenVinoExecutor
    from quantrt.runtime.openvino.ports import Shapes

__all__ = ["OpenVinoLanes"]


class OpenVinoLanes:
    """An executor of which runs of one shape are lanes; all other shapes are left to it.

    Args:
        owner: has to stay open.
        shapes: of the inputs that lanes are for, in the library's order.
        variant: what runs them, imported.
        parallel_runs: lanes.
    """

    def __init__(
        self, owner: OpenVinoExecutor, shapes: Shapes, variant: CompiledVariant, parallel_runs: int
    ) -> None:
        self._owner = owner
        self._shapes = shapes
        self._variant: CompiledVariant | None = variant
        self.parallel_runs = parallel_runs

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run."""
        return self._owner.run_in(self._variant, self._shapes, inputs)

    def close(self) -> None:
        """Free the imported model."""
        self._variant = None
