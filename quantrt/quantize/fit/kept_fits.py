# SPDX-License-Identifier: Apache-2.0
"""What calibration and fitting came to, kept from one build to the next beside the timing cache.

    FILE.X.ranges    what was observed, as `quantrt calibrate` writes it
    FILE.X.fits      JSON: what it is of, the digest of FILE.X.ranges, and for every target its grids,
                     corrected biases, channel means, factors of channels and the method that was chosen

X is the digest of the model and the data, so that several models share a timing cache, and their builds may
run at once. It holds for the same model, data, options and code: each is in the file by its content, and
where one differs everything is made anew. Codes of weights are worked out again from the float weights.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.sample_hash import hash_sample
from quantrt.calibrate.stats import Stats, load_stats, save_stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.ir.kept_file import add_to_kept, warn_damaged
from quantrt.model.fingerprint import structure
from quantrt.model.model import Model
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, corrected_biases, set_biases
from quantrt.quantize.algorithms.smoothing import Smoothing
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.fit.trials import ROUNDED
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantize import weight_codes
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.record import array_text, grid_from_row, grid_row, scaled_graph, text_array
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.target import Target
from quantrt.source_digest import source_digest

__all__ = ["KeptFits", "origin_of"]

log = logging.getLogger(__name__)

FORMAT = "quantrt kept fits"
RANGES_SUFFIX = ".ranges"
FITS_SUFFIX = ".fits"
DIGITS = 12
"""Of a digest, in a file's name."""

SOURCES = ("calibrate", "ir", "model", "quantize", "reference")
"""Folders whose code makes what is kept."""

WITHOUT_EFFECT = ("batch_size", "memory_mb")
"""Options of calibration that do not change its result."""

Fits = Mapping[tuple[str, str], Fitted]


def origin_of(
    model: Model,
    samples: Dataset,
    *,
    names: Iterable[str],
    targets: Mapping[tuple[str, str], Target],
    config: QuantizeConfig,
    options: CalibrationConfig,
) -> dict[str, str]:
    """All that ranges and fits depend on, as text by name; reads every sample that is calibrated on.

    Args:
        names: of the values that are observed.
        targets: by library and precision.
    """
    data = hashlib.sha256()
    for batch in samples.batches(1, options.max_samples):
        data.update(hash_sample(batch.inputs).encode())
    used = {name: value for name, value in asdict(options).items() if name not in WITHOUT_EFFECT}
    return {
        "model": f"{model.fingerprint.graph} {model.fingerprint.weights} {structure(model.graph)}",
        "data": data.hexdigest() + (" random" if samples.is_random else ""),
        "calibration": _digest(used),
        "quantization": _digest(asdict(config)),
        "values": _digest([sorted(names), [[*key, repr(targets[key])] for key in sorted(targets)]]),
        "onnxruntime": importlib.metadata.version("onnxruntime"),
        "sources": source_digest(SOURCES),
    }


@dataclass(frozen=True)
class KeptFits:
    """The two files of one timing cache.

    Attributes:
        timing_cache: whose name theirs begin with.
        origin: of this build.
    """

    timing_cache: Path
    origin: Mapping[str, str]

    @property
    def ranges_path(self) -> Path:
        """What was observed."""
        return self._beside(RANGES_SUFFIX)

    @property
    def fits_path(self) -> Path:
        """What was chosen by it."""
        return self._beside(FITS_SUFFIX)

    @property
    def note(self) -> str:
        """What the report of a build by them says."""
        return (
            f"ranges are those of an earlier build with the same model, data and options: "
            f"'{self.ranges_path.name}', '{self.fits_path.name}'"
        )

    def load(
        self,
        model: Model,
        targets: Mapping[tuple[str, str], Target],
        config: QuantizeConfig,
        scales: KeptScales | None = None,
    ) -> tuple[Stats, dict[tuple[str, str], Fitted]] | None:
        """What an earlier build of the same kept; None where there is none, or it is damaged.

        Args:
            scales: of weights, that earlier builds found.
        """
        if not (self.fits_path.exists() and self.ranges_path.exists()):
            return None
        try:
            data = json.loads(self.fits_path.read_text(encoding="utf-8"))
            is_known = data["format"] == FORMAT
            differs = sorted(name for name in self.origin if data["origin"].get(name) != self.origin[name])
            if not is_known or differs or data["ranges"] != _file_digest(self.ranges_path):
                log.info("'%s' is of another %s: not used", self.fits_path, ", ".join(differs) or "file")
                return None
            fits = {
                key: _fitted(model, data["fits"][" ".join(key)], target, config, scales)
                for key, target in targets.items()
            }
            return load_stats(self.ranges_path), fits
        except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError, DataError) as error:
            warn_damaged(self.fits_path, repr(error))
            return None

    def save(self, stats: Stats, fits: Fits) -> None:
        """Keep them for later builds, where codes can be had from grids and floats again."""
        if not all(_can_keep(fitted) for fitted in fits.values()):
            return
        with add_to_kept(self.fits_path):
            save_stats(stats, self.ranges_path)
            data = {
                "format": FORMAT,
                "origin": dict(self.origin),
                "ranges": _file_digest(self.ranges_path),
                "fits": {" ".join(key): _row(fitted) for key, fitted in fits.items()},
            }
            with replace_file(self.fits_path) as file:
                file.write((json.dumps(data, indent=1) + "\n").encode())

    def _beside(self, suffix: str) -> Path:
        digest = _digest([self.origin["model"], self.origin["data"]])[:DIGITS]
        return self.timing_cache.with_name(f"{self.timing_cache.name}.{digest}{suffix}")


def _can_keep(fitted: Fitted) -> bool:
    """Whether grids and float weights are all there is: not where weights were rounded by data."""
    grids = fitted.model.activations.values()
    is_whole = not fitted.model.biases and all(grid.axis is None for grid in grids)
    return is_whole and ROUNDED not in fitted.method


def _row(fitted: Fitted) -> dict[str, Any]:
    model = fitted.model
    return {
        "method": fitted.method,
        "noise_ratios": dict(fitted.noise_ratios),
        "activations": {name: grid_row(grid) for name, grid in model.activations.items()},
        "axes": [[node, index, x.qparams.axis] for (node, index), x in model.weights.items()],
        "channel_scales": {name: array_text(scale) for name, scale in model.channel_scales.items()},
        "multiplied": {name: array_text(scale) for name, scale in model.multiplied.items()},
        "biases": {
            name: [list(bias.shape), array_text(bias)] for name, bias in corrected_biases(model.graph).items()
        },
        "means": None if fitted.means is None else {k: _exact(mean) for k, mean in fitted.means.items()},
        "kept_float": dict(fitted.kept_float),
        "notes": list(model.notes),
    }


def _fitted(
    model: Model,
    row: Mapping[str, Any],
    target: Target,
    config: QuantizeConfig,
    scales: KeptScales | None,
) -> Fitted:
    channel_scales, multiplied = (
        {name: text_array(text) for name, text in row[key].items()}
        for key in ("channel_scales", "multiplied")
    )
    means: ChannelMeans | None = None
    if row["means"] is not None:
        means = {name: np.frombuffer(base64.b64decode(text), "<f8") for name, text in row["means"].items()}
    floats = scaled_graph(model, Smoothing(channel_scales, multiplied))
    axes = {(str(node), int(index)): axis for node, index, axis in row["axes"]}
    graph = balance_tables(floats, axes)
    weights = weight_codes(graph, axes, target, scales=scales)
    biases = {name: text_array(text).reshape(shape) for name, (shape, text) in row["biases"].items()}
    quantized = QuantizedModel(
        model=model,
        graph=set_biases(graph, biases) if biases else graph,
        target=target,
        placement=place_by_config(floats, target, config, row["kept_float"]),
        activations={name: grid_from_row(*grid) for name, grid in row["activations"].items()},
        weights=weights,
        channel_scales=channel_scales,
        multiplied=multiplied,
        notes=tuple(row["notes"]),
    )
    return Fitted(
        quantized,
        row["method"],
        row["noise_ratios"],
        floats=floats,
        means=means,
        kept_float=row["kept_float"],
    )


def _exact(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=repr).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
