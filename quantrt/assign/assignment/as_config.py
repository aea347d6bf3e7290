# SPDX-License-Identifier: Apache-2.0
"""The options of a build that makes one assignment, and no other mix."""

from __future__ import annotations

from dataclasses import replace

from quantrt.assign.assignment.assignment import Assigned
from quantrt.assign.tables.region import FLOAT
from quantrt.assign.tables.tables import Tables
from quantrt.config import BuildConfig
from quantrt.errors import DataError
from quantrt.ir.name_pattern import literal
from quantrt.model.model import Model

__all__ = ["config_of"]


def config_of(tables: Tables, assigned: Assigned, config: BuildConfig, model: Model) -> BuildConfig:
    """The options, with float what the assignment keeps float, by the library the tables are of.

    Args:
        config: of everything else.

    Raises:
        DataError: the tables are of another model.
    """
    if model.fingerprint != tables.fingerprint:
        got, expected = model.fingerprint, tables.fingerprint
        what = "checkpoint" if got.graph == expected.graph else "model"
        raise DataError(
            f"cannot build an assignment of another {what}",
            got=f"graph/weights {got.graph[:12]}/{got.weights[:12]}",
            expected=f"{expected.graph[:12]}/{expected.weights[:12]}",
            hint="quantrt build ... --tables FILE.json measures this one",
        )
    kept = [
        literal(node)
        for region in tables.regions
        if assigned.precisions[region.name] == FLOAT
        for node in region.nodes
    ]
    is_gpu = tables.library == "cuda"
    device = (
        replace(config.device, device="cuda")
        if is_gpu
        else replace(config.device, libraries=(tables.library,))
    )
    codes = {precision for precision in assigned.precisions.values() if precision != FLOAT}
    return replace(
        config,
        precisions=frozenset({"fp32", *codes}),
        quantize=replace(config.quantize, exclude=(*config.quantize.exclude, *kept)),
        assign=replace(config.assign, mixed=False),
        device=device,
    )
