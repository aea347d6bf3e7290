# SPDX-License-Identifier: Apache-2.0
"""Rules for which layers may be 8-bit at all: --exclude, --exclude-type and --only.

Placement keeps them. Here is what they cannot be asked of, and whether an engine has kept them.
"""

from __future__ import annotations

from collections.abc import Sequence

from quantrt.config import BuildConfig, QuantizeConfig
from quantrt.errors import InternalError, UsageError
from quantrt.model.model import Model
from quantrt.plan.plan import Layer
from quantrt.quantize.placement.exclusions import excluded_nodes
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.placement.place_by_config import left_out
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["check_placed", "check_placement"]


def check_placement(model: Model, config: BuildConfig) -> None:
    """The rules are of use for a model.

    Raises:
        UsageError: there are no codes to place, or the model says itself where they are.
    """
    options = config.quantize
    flags = {"--only": options.only, "--exclude": options.exclude, "--exclude-type": options.exclude_types}
    given = [flag for flag, names in flags.items() if names]
    if options.only and not config.code_precisions:
        raise UsageError("--only names layers that may be 8-bit, and no codes are asked for", hint="--int8")
    if given and is_quantized(model.graph.graph):
        raise UsageError(
            f"{given[0]} cannot choose the 8-bit layers of a model that is quantized already",
            hint="its float model",
        )


def check_placed(options: QuantizeConfig, shipped: QuantizedModel | None, layers: Sequence[Layer]) -> None:
    """What was to stay float is float in an engine.

    Args:
        shipped: the quantized model in it; None for a float engine.
        layers: every node of the model, with the precision that it has.

    Raises:
        InternalError: a layer is 8-bit that may not be.
    """
    if shipped is None:
        return
    graph = shipped.graph.graph
    floats = {
        **left_out(graph, options.only, shipped.target),
        **excluded_nodes(graph, options.exclude, options.exclude_types),
    }
    for layer in layers:
        if layer.name in floats and layer.precision == shipped.target.precision:
            raise InternalError(
                f"layer '{layer.name}' is {layer.precision} in the engine, and has to stay float",
                expected=floats[layer.name],
            )
