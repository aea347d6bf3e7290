# SPDX-License-Identifier: Apache-2.0
"""Gated activations as torch's exporters write them.

    python -m tests.exported_gates

writes their files of tests/exported anew, with the torch that is installed and onnxscript; tests read these.
"""

import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).parent / "exported"
EXPORTERS = {"torchscript": 17, "dynamo": 20}
KINDS = ("geglu", "geglu with tanh", "glu", "slices", "swiglu")
WIDTH, INNER = 8, 12

Tensor = torch.Tensor


class Gate(nn.Module):
    """Out to twice the inner width, through a gate, and back, beside a residual."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.both, self.back = nn.Linear(WIDTH, 2 * INNER), nn.Linear(INNER, WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.back(self.gated(x))

    def gated(self, x: Tensor) -> Tensor:
        if self.kind == "swiglu":
            return functional.silu(self.gate(x)) * self.up(x)
        both = self.both(x)
        if self.kind == "glu":
            return functional.glu(both, -1)
        if self.kind == "slices":
            return functional.silu(both[..., :INNER]) * both[..., INNER:]
        h, g = both.chunk(2, -1)
        return h * functional.gelu(g, approximate="tanh" if "tanh" in self.kind else "none")


class Gates(nn.Module):
    """One behind the other, with an output of each."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList(Gate(kind) for kind in KINDS)

    def forward(self, x: Tensor) -> list[Tensor]:
        outputs = []
        for gate in self.gates:
            x = gate(x)
            outputs.append(x)
        return outputs


def path_of(exporter: str) -> Path:
    return FOLDER / f"gates_{exporter}.onnx"


def inputs() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(7).standard_normal((2, 5, WIDTH)).astype(np.float32)}


def export(exporter: str) -> onnx.ModelProto:
    torch.manual_seed(0)
    model, x = Gates().eval(), torch.from_numpy(inputs()["x"])
    names = {"input_names": ["x"], "output_names": [f"y{n}" for n in range(len(KINDS))]}
    options = {**names, "opset_version": EXPORTERS[exporter]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        if exporter == "dynamo":
            sizes = torch.export.Dim("B", min=2, max=64), torch.export.Dim("S", min=2, max=64)
            shapes = (dict(enumerate(sizes)),)
            return torch.onnx.export(
                model, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False, **options
            ).model_proto
        file = io.BytesIO()
        axes = {"x": {0: "B", 1: "S"}}
        torch.onnx.export(model, (x,), file, dynamo=False, dynamic_axes=axes, **options)
    return onnx.load_from_string(file.getvalue())


if __name__ == "__main__":
    from tests.exported_attention import save

    for exporter in EXPORTERS:
        save(export(exporter), path_of(exporter))
