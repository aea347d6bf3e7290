# SPDX-License-Identifier: Apache-2.0
"""Made-up tables of a chain of regions."""

from collections.abc import Mapping

from quantrt.assign.assignment.assignment import uniform
from quantrt.assign.tables.cost_model import CostModel, Crossing
from quantrt.assign.tables.region import Region
from quantrt.assign.tables.tables import BuiltEngine, Tables
from quantrt.model.model import Fingerprint

NAMES = tuple("abcdef")
DAMAGES = {"a": 1e-4, "b": 5e-2, "c": 1e-4, "d": 2e-4, "e": 1e-4, "f": 3e-2}
INT8_MS = {"a": 0.4, "b": 0.5, "c": 0.4, "d": 1.05, "e": 0.4, "f": 0.9}


def tables(damages: Mapping[str, float] | None = None, **changes) -> Tables:
    """Six regions of 1 ms, 0.4 to 1.1 in int8; 0.05 ms for a conversion between neighbours."""
    noise = DAMAGES if damages is None else damages
    made = Tables(
        fingerprint=Fingerprint("3f" * 32, "9a" * 32),
        library="openvino",
        metric="top1",
        samples=16,
        regions=tuple(Region(name, (name, f"{name}/add"), ("Conv", "Add")) for name in NAMES),
        damages={name: {"fp32": 0.0, "int8": damage} for name, damage in noise.items()},
        costs=CostModel(
            {name: {"fp32": 1.0, "int8": INT8_MS[name]} for name in NAMES},
            tuple(Crossing(a, b, 100_000) for a, b in zip(NAMES, NAMES[1:], strict=False)),
            0.5,
        ),
    )
    made = made.with_engine(BuiltEngine(uniform(made, "fp32"), 6.0, 0.0, 0.0))
    total = sum(noise.values()) if noise else None
    made = made.with_engine(BuiltEngine(uniform(made, "int8"), 3.7, total, 0.2 if noise else 0.001))
    return Tables(**{**made.__dict__, **changes})
