# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.cuda_assignment` measures: models with random weights, and trained ones made to break."""

__all__ = ["CASES", "Case", "sdxl_case"]

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import assignment_cases, diffusion
from benchmarks.assignment_cases import Material, make_material
from benchmarks.cuda_engines import ROWS, Row, export_module, inputs_of, module_of
from benchmarks.nets.sdxl_unet import SDXL, sdxl_inputs
from quantrt.config import Budget

CODES = ("int8", "fp8")

CALIBRATION_SAMPLES = 8
"""Of models with random weights."""

DAMAGE_SAMPLES = 4
"""Of those, that damage is measured on: what each region does to their outputs is nearly the same of all."""

SDXL_DB = 10.0
"""Of a network with random weights: it never learned to tell signal and noise apart, and in fp16 has 33."""


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        make: (folder, batch) -> its model and data.
        batch: of a timed run.
        samples: that damage is measured on, on the CPU.
        codes: the kinds that the build may use.
        ranges: of an earlier calibration, in the place of samples; nothing is mixed then.
    """

    make: Callable[[Path, int], Material]
    batch: int
    budget: Budget
    samples: int = DAMAGE_SAMPLES
    codes: tuple[str, ...] = CODES
    ranges: Path | None = None


def _exported(row: Row, folder: Path, batch: int) -> Material:
    """A model with random weights; with a free batch, so that a few samples calibrate a large one."""
    few = inputs_of(replace(row, batch=CALIBRATION_SAMPLES))
    path = folder / f"{row.model}.onnx"
    export_module(module_of(row), path, few, list(few), has_free_batch=True)
    return Material(path, [few], inputs_of(replace(row, batch=batch)))


def _random(name: str, sqnr_db: float, samples: int = DAMAGE_SAMPLES) -> Case:
    """A row of `benchmarks.cuda_engines`, with a budget for the noise in its outputs."""
    row = next(row for row in ROWS if row.name == name)
    budget = Budget(metric="sqnr", max_drop_ratio=10 ** (-sqnr_db / 10))
    return Case(partial(_exported, row), row.batch, budget, samples)


def _trained(name: str, batch: int) -> Case:
    """A case of `benchmarks.assignment_cases`, without fp8: its range is wide enough for what is planted."""
    case = assignment_cases.CASES[name]
    budget = Budget(metric="top1", max_drop_ratio=case.max_drop_ratio)
    return Case(lambda folder, _: make_material(case, folder), batch, budget, samples=16, codes=("int8",))


CASES = {
    "resnet50-b32": _random("resnet50-b32", 20.0),
    "mobilenetv2-b32": _random("mobilenetv2-b32", 20.0),
    "efficientvit_b1-b32": _random("efficientvit_b1-b32", 20.0),
    "vit_b16-b32": _random("vit_b16-b32", 35.0),
    "vit-outliers": _trained("vit-outliers", 256),
    "mobilenetv3-ranges": _trained("mobilenetv3-ranges", 256),
    "bert_large-b32-s384": _random("bert_large-b32-s384", 35.0, samples=1),
}


def sdxl_case(folder: Path) -> Case:
    """The UNet of SDXL; damage of its hundreds of regions would take the CPU hours."""
    feed = {name: x.numpy() for name, x in sdxl_inputs(SDXL, diffusion.BATCH, 128, 128).items()}
    return Case(
        lambda _, batch: Material(
            folder / diffusion.GRAPH, [], {name: x[:batch] for name, x in feed.items()}
        ),
        diffusion.BATCH,
        Budget(metric="sqnr", max_drop_ratio=10 ** (-SDXL_DB / 10)),
        ranges=folder / diffusion.RANGES,
    )
