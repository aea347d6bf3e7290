# SPDX-License-Identifier: Apache-2.0
"""Statistics for a model: read from a ranges file, or collected from the data that the options name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quantrt.cli.options.data import DATA_HELP, data_source, open_data
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantrt.calibrate.dataset import Dataset
    from quantrt.calibrate.stats import Stats
    from quantrt.model.model import Model

__all__ = ["add_sources", "calibration_data", "collect_stats", "given_sources", "read_stats"]


def add_sources(parser: argparse._ActionsContainer) -> None:
    """Add --calib-data, --ranges and --calib-cache."""
    parser.add_argument("--calib-data", type=data_source, metavar="P", help=f"calibration data: {DATA_HELP}")
    parser.add_argument(
        "--ranges", type=Path, metavar="X.ranges", help="result of `quantrt calibrate`, no new pass"
    )
    parser.add_argument(
        "--calib-cache",
        type=Path,
        metavar="FILE",
        help="scales of a calibration cache of TensorRT or ONNX Runtime; --calib-data fills its gaps",
    )


def given_sources(args: argparse.Namespace) -> list[str]:
    """Which of --ranges, --calib-cache, --calib-data and --calib-random were given.

    Ranges and data go together: the ranges save the pass over the data, the data serve to correct biases.
    Both fill the gaps of a calibration cache.

    Raises:
        UsageError: random data together with another source.
    """
    sources = {
        "--ranges": args.ranges,
        "--calib-cache": args.calib_cache,
        "--calib-data": args.calib_data,
        "--calib-random": args.calib_random,
    }
    given = [flag for flag, value in sources.items() if value]
    if args.calib_random and len(given) > 1:
        raise UsageError(f"cannot calibrate from {' and '.join(given)} together", hint=f"{given[0]} alone")
    return given


def read_stats(path: Path, model: Model) -> Stats:
    """The statistics in a ranges file.

    Raises:
        DataError: they are of another graph, or of another checkpoint of the same graph.
    """
    from quantrt.calibrate.stats import load_stats

    stats = load_stats(path)
    got, want = stats.fingerprint, model.fingerprint
    if got != want:
        kind, got_hash, want_hash = (
            ("another checkpoint of this model", got.weights, want.weights)
            if got.graph == want.graph
            else ("another model", got.graph, want.graph)
        )
        raise DataError(
            f"cannot use '{path}' for '{model.path}': its ranges are of {kind}",
            got=got_hash[:16],
            expected=want_hash[:16],
            hint=f"`quantrt calibrate {model.path}`",
        )
    return stats


def calibration_data(model: Model, args: argparse.Namespace, config: CalibrationConfig) -> Dataset:
    """The samples of --calib-data that are like each other, or those of --calib-random."""
    from quantrt.calibrate.unlike import without_unlike
    from quantrt.calibrate.usual_sizes import made_up_data
    from quantrt.prepare import RANDOM_SAMPLES

    if args.calib_random:
        return made_up_data(model, config.max_samples or RANDOM_SAMPLES, config.seed)
    dataset = open_data(args.calib_data, model.inputs, preprocess=args.preprocess)
    return dataset if config.keep_unlike else without_unlike(dataset, config.max_samples)


def collect_stats(
    model: Model,
    dataset: Dataset,
    config: CalibrationConfig,
    *,
    names: Sequence[str] | None = None,
    resume: Path | None = None,
    quiet: bool,
) -> Stats:
    """Statistics of every activation that any target quantizes.

    Args:
        names: observe these instead.
        resume: file that an interrupted run continues from; None to start anew and keep no such file.

    Raises:
        ModelError: no target quantizes anything in this model.
    """
    from quantrt.calibrate.collect import collect
    from quantrt.prepare import observable
    from quantrt.report.progress import progress_bars

    names = observable(model) if names is None else names
    with progress_bars(quiet=quiet) as bars:
        on_progress = bars.counter("calibrating", "samples")
        return collect(model, names, dataset, config, resume=resume, on_progress=on_progress)
