# SPDX-License-Identifier: Apache-2.0
"""OpenVINO models as an engine holds them: XML and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quantrt.ir.mapped import map_file
from quantrt.ir.scratch import scratch_folder
from quantrt.plan.plan import LibraryModel

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["hold_openvino", "read_openvino"]


def hold_openvino(model: ov.Model) -> LibraryModel:
    """An imported OpenVINO model as its IR; weights stay in the file that the library wrote, now nameless."""
    import openvino as ov  # heavy: engines of other libraries are made and looked at without it

    with scratch_folder() as folder:
        xml, weights = folder / "model.xml", folder / "model.bin"
        ov.serialize(model, xml, weights)
        has_weights = weights.stat().st_size > 0
        held = np.frombuffer(map_file(weights), np.uint8) if has_weights else np.zeros(0, np.uint8)
        return LibraryModel("openvino", xml.read_bytes(), {"bin": held})


def read_openvino(model: LibraryModel) -> ov.Model:
    """The graph of a model of library "openvino"."""
    import openvino as ov  # heavy, as above

    return ov.Core().read_model(model.graph.decode("utf-8"), ov.Tensor(model.weights["bin"]))
