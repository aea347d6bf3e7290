# SPDX-License-Identifier: Apache-2.0
"""What became of a pipeline: its engines, their times, and its images before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

from quantrt.report.quantities import bytes_text, memory_text, ms_text, ratio_text
from quantrt.report.tables import facts, heading, show, table
from quantrt.torch.diffusers.image_grid import save_image_grid
from quantrt.torch.diffusers.image_quality import psnr_db, ssim
from quantrt.torch.diffusers.latency import ModuleTime, RunTime

__all__ = ["PartReport", "PipelineReport"]


@dataclass(frozen=True)
class PartReport:
    """One module that became an engine.

    Attributes:
        engine: the engine file.
        precision: of the engine as shipped; "fp32" where nothing else was surely faster inside the budget.
        reason: why.
        samples: samples it was calibrated on.
        onnx_bytes: the exported model, weights included.
        engine_bytes: the engine file.
        peak_memory: of the process so far, once "exported" and once "built"; see quantrt.runtime.peak_memory.
    """

    name: str
    engine: Path
    precision: str
    reason: str
    samples: int
    onnx_bytes: int
    engine_bytes: int
    peak_memory: Mapping[str, Mapping[str, int | None]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PipelineReport:
    """What `quantize_pipeline` did.

    Attributes:
        level: quantization level.
        parts: the engines.
        before, after: times of one run, for the first prompt.
        title_before: what the images before are called: the type of the modules.
        images_before, images_after: f32 [height, width, 3] in 0..1, prompt by prompt, from equal noise.
    """

    level: str
    parts: tuple[PartReport, ...]
    before: RunTime
    after: RunTime
    images_before: Sequence[np.ndarray] = field(repr=False)
    images_after: Sequence[np.ndarray] = field(repr=False)
    title_before: str = "FP32"

    @property
    def title(self) -> str:
        """What the engines' images are called: the precisions of the engines."""
        return "/".join(dict.fromkeys(part.precision.upper() for part in self.parts))

    @property
    def _title_after(self) -> str:
        return self.title if self.title != self.title_before else f"{self.title} engine"

    def likeness(self) -> list[tuple[float, float]]:
        """(PSNR in dB, SSIM) of every image against the one before."""
        pairs = zip(self.images_before, self.images_after, strict=True)
        return [(psnr_db(a, b), ssim(a, b)) for a, b in pairs]

    def save_grid(self, path: str | Path, more: Mapping[str, Sequence[np.ndarray]] | None = None) -> None:
        """Write the images before and after side by side, as a PNG.

        Args:
            more: further columns, such as the images of the same prompts in another precision.

        Raises:
            DataError: columns differ in number or shape of images.
            DeviceError: the path cannot be written.
        """
        columns = {self.title_before: self.images_before, self._title_after: self.images_after}
        save_image_grid({**columns, **(more or {})}, path)

    def to_dict(self) -> dict[str, Any]:
        """All but the images, JSON-ready."""
        return {
            "level": self.level,
            "parts": [{**vars(part), "engine": str(part.engine)} for part in self.parts],
            "before": _run_dict(self.before),
            "after": _run_dict(self.after),
            "images": [{"psnr_db": psnr, "ssim": alike} for psnr, alike in self.likeness()],
        }

    def show(self) -> None:
        """Print what was made, and the times of the modules."""
        show(heading(f"quantization level {self.level}"), *map(_part_facts, self.parts), self._times())
        rows = ((str(i), f"{psnr:.1f} dB", f"{alike:.3f}") for i, (psnr, alike) in enumerate(self.likeness()))
        show(table(("image", "PSNR", "SSIM"), rows))

    def _times(self) -> RenderableType:
        rows = [
            _row(f"{old.name} x {old.calls}" if old.calls > 1 else old.name, old.call_ms, new.call_ms)
            for old, new in _paired(self.before, self.after)
        ]
        rows.append(_row("pipeline", self.before.total_ms, self.after.total_ms))
        speeds = [f"{run.images_per_s:.3g}" for run in (self.before, self.after)]
        rows.append(("images/s", *speeds, ""))
        titles = (f"{title}, ms" for title in (self.title_before, self._title_after))
        return table(("module x calls", *titles, "as fast"), rows, left=("module x calls",))


def _paired(before: RunTime, after: RunTime) -> list[tuple[ModuleTime, ModuleTime]]:
    later = {module.name: module for module in after.modules}
    return [(module, later[module.name]) for module in before.modules if module.name in later]


def _row(name: str, before_ms: float, after_ms: float) -> tuple[str, ...]:
    return name, ms_text(before_ms), ms_text(after_ms), ratio_text(before_ms / after_ms)


def _part_facts(part: PartReport) -> RenderableType:
    ratio = part.engine_bytes / part.onnx_bytes
    peaks = "; ".join(f"{memory_text(peak)} when {stage}" for stage, peak in part.peak_memory.items())
    return facts(
        (
            (part.name, f"{part.precision}: {part.reason}"),
            ("file size", f"{bytes_text(part.engine_bytes)}, {ratio:.2f} of the float model's"),
            ("calibrated on", f"{part.samples} samples"),
            ("peak memory", peaks),
            *(("note", note) for note in part.notes),
        )
    )


def _run_dict(run: RunTime) -> dict[str, Any]:
    return {
        "modules": [vars(module) for module in run.modules],
        "total_ms": run.total_ms,
        "images": run.images,
        "images_per_s": run.images_per_s,
    }
