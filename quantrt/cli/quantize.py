# SPDX-License-Identifier: Apache-2.0
"""`quantrt quantize`: model + ranges -> standard ONNX Q/DQ model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.data import add_preprocess
from quantrt.cli.options import add_config, read_config
from quantrt.cli.paths import check_output
from quantrt.cli.ranges import (
    add_sources,
    calibration_data,
    collect_stats,
    given_sources,
    observe_model,
    read_stats,
)
from quantrt.cli.recipe import add_recipe, fill_from_recipe
from quantrt.cli.weight_only import quantize_weights_alone
from quantrt.config import TARGETS, CalibrationConfig, QuantizeConfig
from quantrt.errors import ModelError, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from quantrt.quantize.fit import Fitted
    from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, ranges or data, target, output."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="the float model")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="Q.onnx", help="Q/DQ model to write"
    )
    parser.add_argument(
        "--target",
        choices=TARGETS,
        help=f"whose placement rules to follow (default: {TARGETS[0]})",
    )
    add_sources(parser)
    add_preprocess(parser)
    add_recipe(parser)
    add_config(parser, CalibrationConfig, "calibration")
    add_config(parser, QuantizeConfig, "quantization")


def _run(args: argparse.Namespace) -> Result:
    """Quantize and write the model."""
    check_output(args.output, ".onnx", reads=(args.model,))
    _take_recipe(args)
    if args.weights == "int4":
        return quantize_weights_alone(args)
    if args.target is None:
        args.target = TARGETS[0]
    if not given_sources(args) and args.activations != "per-token":
        raise UsageError(
            "cannot quantize without ranges",
            expected="--ranges, --calib-cache, --calib-data or --calib-random",
            hint="--activations per-token, where there are no data",
        )
    fitted, is_random = _quantize(args)
    quantized = fitted.model
    if not any(row.is_int8 for row in quantized.placement.decisions):
        raise ModelError(
            f"no node of '{args.model}' can be quantized for {args.target}",
            got=_level_text(quantized, args.quantization_level),
            hint="another --target, a higher --quantization-level, or fewer exclusions",
        )
    data = _write(fitted, is_random, args)
    return Result(data, lambda: _show(data))


def _take_recipe(args: argparse.Namespace) -> None:
    """Fill what is not given from the recipe, the target among it."""
    recipe = fill_from_recipe(args)
    if recipe is not None and recipe.precision != "int8":
        raise UsageError(
            f"recipe '{recipe.name}' is for {recipe.precision}, and Q/DQ models are written in int8",
            hint=f"quantrt build {args.model} --recipe {recipe.name} ...",
        )
    if args.target is None and recipe is not None:
        args.target = recipe.target


def _level_text(quantized: QuantizedModel, level: str | None) -> str | None:
    """What the level that was asked for has to do with nothing being quantized."""
    from quantrt.quantize.levels import why_level_left_all

    return None if level in (None, "auto") else why_level_left_all(quantized.graph.graph, level)


def _quantize(args: argparse.Namespace) -> tuple[Fitted, bool]:
    """The quantized model, and whether its ranges are of random data."""
    from quantrt.calibrate.trt_cache import read_cache
    from quantrt.model.load import load_model
    from quantrt.quantize.cache_match import match_cache, match_notes
    from quantrt.quantize.fit import fit, sample_reference
    from quantrt.quantize.targets import target_named

    config, options = read_config(args, CalibrationConfig), read_config(args, QuantizeConfig)
    cache = read_cache(args.calib_cache) if args.calib_cache is not None else None
    model, target = load_model(args.model), target_named(args.target)
    match = match_cache(model, cache, (target,), options) if cache is not None else None
    stats = read_stats(args.ranges, model) if args.ranges is not None else None
    dataset, reference = None, None
    if args.calib_data is not None or args.calib_random:
        dataset = calibration_data(model, args, config)
        if stats is None and match is None:
            stats, reference = observe_model(model, dataset, config, options, quiet=args.quiet)
        elif stats is None and match is not None and match.missing:
            stats = collect_stats(model, dataset, config, names=tuple(match.missing), quiet=args.quiet)
    if reference is None:
        reference = sample_reference(
            model, dataset, options, config, batch_size=config.batch_size, with_twins=match is None
        )
    given = None if match is None else match.given
    made = fit(model, stats, target, reference, config=options, calibration=config, given=given)
    told = () if dataset is None else dataset.remarks
    told += () if match is None else match_notes(match, stats)
    made = replace(made, model=replace(made.model, notes=(*told, *made.model.notes)))
    origin = None if cache is None else cache.origin
    return made, any(source is not None and source.is_random for source in (stats, origin))


def _write(fitted: Fitted, is_random: bool, args: argparse.Namespace) -> dict[str, Any]:
    from quantrt.model.read import read_model
    from quantrt.model.save import save_model
    from quantrt.plan.lower import spell_for_onnxruntime
    from quantrt.quantize.qdq import write

    quantized = fitted.model
    made = write(quantized)
    if quantized.target.name == "ort":
        made = spell_for_onnxruntime(made)
    save_model(made, args.output)
    decisions = quantized.placement.decisions
    return {
        "output": str(args.output),
        "target": quantized.target.name,
        "int8_nodes": sum(row.is_int8 for row in decisions),
        "nodes": len(decisions),
        "range_method": fitted.method,
        "quantized_activations": len(quantized.activations),
        "products_per_token": len(quantized.placement.per_token),
        "quantized_weights": len(quantized.weights),
        "size_bytes": read_model(args.output).file_bytes,
        "float_size_bytes": quantized.model.file_bytes,
        "is_calibrated": not is_random,
        "notes": [*quantized.notes, *_session_notes(made, quantized.target.name)],
    }


def _session_notes(made: ir.Model, target: str) -> tuple[str, ...]:
    """What a session of the model has to be told for layers to stay float."""
    from quantrt.ir.ort_options import KEEP_FLOATS
    from quantrt.quantize.requantized import requantized_products

    names = requantized_products(made) if target == "ort" else ()
    if not names:
        return ()
    key, value = KEEP_FLOATS
    which = f"'{names[0]}'{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
    return (
        f"ONNX Runtime makes {which} int8, which the model leaves float between 8-bit layers, unless its "
        f"session has {key}={value}; engines of `quantrt build` have it",
    )


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.quantities import bytes_text
    from quantrt.report.tables import facts, heading, show

    mark = "" if data["is_calibrated"] else ", uncalibrated (random data)"
    ratio = data["size_bytes"] / data["float_size_bytes"]
    per_token = data["products_per_token"]
    rows = f", scales per token before {per_token} product{'s' * (per_token > 1)}" if per_token else ""
    show(
        heading(f"{data['output']}: ONNX Q/DQ for {data['target']}{mark}"),
        facts(
            (
                ("int8 nodes", f"{data['int8_nodes']} of {data['nodes']}"),
                ("activations", f"{data['quantized_activations']} quantized{rows}"),
                ("weights", f"{data['quantized_weights']} quantized"),
                ("ranges", data["range_method"]),
                ("size", f"{bytes_text(data['size_bytes'])}, {ratio:.2f} of the float model's"),
                *(("note", note) for note in data["notes"]),
            )
        ),
    )


COMMAND = Command(
    name="quantize",
    summary="write a standard ONNX Q/DQ model, for any runtime",
    details="Quantize by one target's placement rules and write standard ONNX: int8 weights, QuantizeLinear "
    "and DequantizeLinear on the activations. `build` does the same and also times and checks the "
    "result.",
    examples=(
        (
            "for ONNX Runtime, from a ranges file",
            "quantrt quantize model.onnx --ranges model.ranges --target ort -o model.int8.onnx",
        ),
        (
            "for TensorRT, from data",
            "quantrt quantize model.onnx --calib-data calib.npz --target tensorrt -o model.trt.onnx",
        ),
        (
            "on the scales of a TensorRT calibration cache",
            "quantrt quantize model.onnx --calib-cache calibration.cache --target tensorrt -o model.trt.onnx",
        ),
        (
            "weights alone in 4 bits, by GPTQ",
            "quantrt quantize model.onnx --recipe weight-only-int4 --calib-data calib.npz -o model.int4.onnx",
        ),
        (
            "a transformer without calibration data",
            "quantrt quantize model.onnx --activations per-token -o model.int8.onnx",
        ),
        (
            "one block stays float",
            "quantrt quantize model.onnx --ranges model.ranges --exclude '/layer4/*' -o model.int8.onnx",
        ),
        (
            "convolutions and feed-forward layers alone, as of a diffusion UNet",
            "quantrt quantize unet.onnx --calib-data calib/ --quantization-level 2 -o unet.int8.onnx",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
