# SPDX-License-Identifier: Apache-2.0
"""`quantrt quantize --weights int4`: a model whose weights alone are in 4 bits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Result
from quantrt.cli.options.options import read_config
from quantrt.cli.options.ranges import calibration_data
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import UsageError

if TYPE_CHECKING:
    from quantrt.model.model import Model
    from quantrt.quantize.weight_only import WeightOnly

__all__ = ["quantize_weights_alone"]

SAMPLES = 128
"""That GPTQ and AWQ look at, as in their papers."""


def quantize_weights_alone(args: argparse.Namespace) -> Result:
    """Round the weights, write the model, show what became of it.

    Raises:
        UsageError: ranges are given, which nothing would use.
    """
    if args.target is None:
        args.target = "ort"
    for flag, value in (("--ranges", args.ranges), ("--calib-cache", args.calib_cache)):
        if value is not None:
            raise UsageError(
                f"{flag} has no use with --weights int4: activations stay floats",
                hint="--calib-data calib.npz",
            )
    made, model = _round(args)
    data = _write(made, model, args)
    return Result(data, lambda: _show(data))


def _round(args: argparse.Namespace) -> tuple[WeightOnly, Model]:
    from quantrt.model.load import load_model
    from quantrt.quantize.weight_only import quantize_weights
    from quantrt.report.progress import progress_bars

    config, options = read_config(args, CalibrationConfig), read_config(args, QuantizeConfig)
    model = load_model(args.model)
    batches: list[Any] = []
    if args.calib_data is not None or args.calib_random:
        dataset = calibration_data(model, args, config)
        limit = min(SAMPLES, config.max_samples or SAMPLES)
        batches = [batch.inputs for batch in dataset.batches(config.batch_size, limit)]
    with progress_bars(quiet=args.quiet) as bars:
        made = quantize_weights(
            model,
            batches,
            options,
            target=args.target,
            on_progress=bars.counter("rounding", "weights"),
        )
    return made, model


def _write(made: WeightOnly, model: Model, args: argparse.Namespace) -> dict[str, Any]:
    from quantrt.config import DEFAULT_GROUP_SIZE
    from quantrt.model.file.read import read_model
    from quantrt.model.file.save import save_model

    save_model(made.graph, args.output)
    options = read_config(args, QuantizeConfig)
    return {
        "output": str(args.output),
        "target": args.target,
        "weights": "int4",
        "group_size": options.group_size or DEFAULT_GROUP_SIZE,
        "weight_rounding": options.weight_rounding,
        "products": len(made.products),
        "tables": len(made.tables),
        "scaled_activations": made.scaled,
        "size_bytes": read_model(args.output).file_bytes,
        "float_size_bytes": model.file_bytes,
        "is_calibrated": not args.calib_random,
    }


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.quantities import bytes_text
    from quantrt.report.tables import facts, heading, show

    ratio = data["size_bytes"] / data["float_size_bytes"]
    mark = "" if data["is_calibrated"] else ", uncalibrated (random data)"
    show(
        heading(f"{data['output']}: weights in 4 bits, for {data['target']}{mark}"),
        facts(
            (
                ("operators", "ONNX Runtime's" if data["target"] == "ort" else "ONNX's, INT4 in blocks"),
                ("products", f"{data['products']} in 4 bits"),
                ("tables", f"{data['tables']} in 4 bits"),
                ("rounding", f"{data['weight_rounding']}, {data['group_size']} inputs share a scale"),
                ("activations", f"floats, {data['scaled_activations']} of them scaled"),
                ("size", f"{bytes_text(data['size_bytes'])}, {ratio:.3f} of the float model's"),
            )
        ),
    )
