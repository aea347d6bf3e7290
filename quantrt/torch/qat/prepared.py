# SPDX-License-Identifier: Apache-2.0
"""A module with fake quantization, and what `convert` has to know of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx, nn

from quantrt.quantize.quantized_model import Decision, Placement, Use
from quantrt.quantize.scales.qparams import quantize_array
from quantrt.quantize.target import Target
from quantrt.torch.qat.fake_quant import FakeQuantize, FakeQuantizeBias

__all__ = ["PreparedModel", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Where the fake quantization of a prepared module is in its ONNX graph.

    Attributes:
        onnx: the module in ONNX before training, not canonical.
        parameters: initializers of `onnx` that are parameters or buffers of the network, by name.
        activations: name of the module that rounds each quantized value.
        calls: name of a node of the network that calls it, for each of them that something reads.
        weights: the same for each weight, and whether ONNX has it transposed.
        biases: name of the module that rounds each bias; None for one that is all zero, and no parameter.
    """

    onnx: ir.Model
    target: Target
    placement: Placement
    parameters: frozenset[str]
    activations: Mapping[str, str]
    calls: Mapping[str, str]
    weights: Mapping[Use, tuple[str, bool]]
    biases: Mapping[Use, str | None]

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        """Itself: nothing changes it, and copies of a module are of one ONNX graph."""
        return self


class PreparedModel(nn.Module):
    """A traced module whose quantized edges are rounded. Train it like any other; then `convert` it.

    Attributes:
        network: the traced module. Parameters have the names they had; a batch normalization behind a
            convolution or product is part of that, frozen.
        recipe: what `convert` needs.
        notes: what a user should know, one sentence each.
    """

    def __init__(self, network: fx.GraphModule, recipe: Recipe, notes: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.notes = notes

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes, with the roundings of the engine."""
        return self.network(*args, **kwargs)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Whether each ONNX node runs in 8 bits, and why or why not."""
        return self.recipe.placement.decisions

    def quantizers(self) -> Iterator[tuple[str, FakeQuantize]]:
        """The modules that round activations and weights, by name."""
        for name, module in self.network.named_modules():
            if isinstance(module, FakeQuantize):
                yield name, module

    def codes(self, *inputs: torch.Tensor) -> dict[str, np.ndarray]:
        """The integers that every quantized activation is rounded to, by the name of its value in ONNX."""
        found: dict[str, np.ndarray] = {}
        values = {call: value for value, call in self.recipe.calls.items()}
        modules = dict(self.quantizers())

        class Recorder(fx.Interpreter):
            def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
                value = values.get(self.current.name)
                if value is not None:
                    found[value] = quantize_array(args[0].detach().cpu().numpy(), modules[target].qparams())
                return super().call_module(target, args, kwargs)

            def run_node(self, n: fx.Node) -> Any:
                self.current = n
                return super().run_node(n)

        with torch.no_grad():
            Recorder(self.network).run(*inputs)
        return found

    @contextmanager
    def in_floats(self) -> Iterator[None]:
        """Within, nothing is rounded: the float module with the weights as they are now."""
        modules = [m for m in self.network.modules() if isinstance(m, (FakeQuantize, FakeQuantizeBias))]
        before = [module.is_enabled for module in modules]
        try:
            for module in modules:
                module.is_enabled = False
            yield
        finally:
            for module, was_enabled in zip(modules, before, strict=True):
                module.is_enabled = was_enabled
