# SPDX-License-Identifier: Apache-2.0
"""`quantrt quantize`: model + ranges -> standard ONNX Q/DQ model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import add_preprocess, data_source, find_local_modules, open_data
from quantrt.cli.options.options import add_config, read_config
from quantrt.cli.options.paths import check_output
from quantrt.cli.options.ranges import add_sources, given_sources, read_stats
from quantrt.cli.options.recipe import add_recipe, fill_from_recipe
from quantrt.cli.verbs.weight_only import quantize_weights_alone
from quantrt.config import TARGETS, AssignConfig, Budget, BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.errors import AccuracyError, UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from quantrt.qdq_model.make import QdqModel

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
    parser.add_argument(
        "--valid-data", type=data_source, metavar="P", help="validation data, to measure the drop"
    )
    parser.add_argument(
        "--labels", metavar="L", help="labels of --valid-data: a .csv or .npy file, 'filename' or 'folder'"
    )
    add_preprocess(parser)
    add_recipe(parser)
    add_config(parser, CalibrationConfig, "calibration")
    add_config(parser, QuantizeConfig, "quantization")
    add_config(parser, Budget, "accuracy budget (kept where it, or validation data, are given)")
    add_config(parser, AssignConfig, "layers left float for it", skip=("bf16_beside_int8", "tables"))


def _run(args: argparse.Namespace) -> Result:
    """Quantize and write the model; one that is outside a budget is not written."""
    check_output(args.output, ".onnx", reads=(args.model,))
    _take_recipe(args)
    budget = _budget(args)
    if args.weights == "int4":
        if budget is not None:
            raise UsageError(
                "a budget is kept by leaving layers of 8 bits float, and weights alone in 4 bits have none",
                hint="`quantrt build MODEL.onnx --weights int4 --valid-data P ...`, which measures the drop",
            )
        return quantize_weights_alone(args)
    if args.target is None:
        args.target = TARGETS[0]
    if not given_sources(args) and args.activations != "per-token":
        raise UsageError(
            "cannot quantize without ranges",
            expected="--ranges, --calib-cache, --calib-data or --calib-random",
            hint="--activations per-token, where there are no data",
        )
    try:
        made = _make(args, budget)
    except AccuracyError as error:
        failed = _failed(error, args)
        return Result(failed, lambda: _show_failed(failed), exit_code=error.exit_code)
    data = _write(made, args)
    return Result(data, lambda: _show(data))


def _budget(args: argparse.Namespace) -> Budget | None:
    """The budget that is to be kept; None where nothing asks for one."""
    if args.labels is not None and args.valid_data is None:
        raise UsageError("--labels belongs to validation data, and none was given", hint="--valid-data P")
    if args.valid_data is None and args.metric is None and args.max_drop_ratio is None:
        return None
    find_local_modules(args.metric)
    return read_config(args, Budget)


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


def _make(args: argparse.Namespace, budget: Budget | None) -> QdqModel:
    from quantrt.model.load import load_model
    from quantrt.qdq_model.make import quantize_model
    from quantrt.report.progress import progress_bars

    model = load_model(args.model)
    calibration = validation = None
    if args.calib_data is not None:
        calibration = open_data(args.calib_data, model.inputs, preprocess=args.preprocess)
    if args.valid_data is not None:
        validation = open_data(args.valid_data, model.inputs, preprocess=args.preprocess, labels=args.labels)
    config = BuildConfig(
        calibration=read_config(args, CalibrationConfig),
        quantize=read_config(args, QuantizeConfig),
        assign=read_config(args, AssignConfig),
    )
    with progress_bars(quiet=args.quiet) as bars:
        return quantize_model(
            model,
            target=args.target,
            config=config,
            budget=budget,
            calibration=calibration,
            validation=validation,
            stats=None if args.ranges is None else read_stats(args.ranges, model),
            calibration_cache=args.calib_cache,
            on_event=bars.on_event,
        )


def _write(made: QdqModel, args: argparse.Namespace) -> dict[str, Any]:
    from quantrt.model.file.read import read_model

    made.save(args.output)
    quantized = made.quantized
    decisions = quantized.placement.decisions
    data = {
        "output": str(args.output),
        "target": quantized.target.name,
        "int8_nodes": sum(row.is_int8 for row in decisions),
        "nodes": len(decisions),
        "range_method": made.fitted.method,
        "quantized_activations": len(quantized.activations),
        "products_per_token": len(quantized.placement.per_token),
        "quantized_weights": len(quantized.weights),
        "size_bytes": read_model(args.output).file_bytes,
        "float_size_bytes": quantized.model.file_bytes,
        "is_calibrated": made.is_calibrated,
        "notes": [*quantized.notes, *_session_notes(made.graph, quantized.target.name)],
    }
    return data if made.report is None else {**data, "passed": True, "budget": made.report}


def _failed(error: AccuracyError, args: argparse.Namespace) -> dict[str, Any]:
    """What is told where nothing is inside the budget; there is no file."""
    said = {"message": error.message, "got": error.got, "expected": error.expected, "hint": error.hint}
    return {"model": str(args.model), "target": args.target, "passed": False, **said, "budget": error.report}


def _session_notes(made: ir.Model, target: str) -> tuple[str, ...]:
    """What a session of the model has to be told for layers to stay float."""
    from quantrt.ir.ort_options import KEEP_FLOATS
    from quantrt.quantize.qdq.requantized import requantized_products

    names = requantized_products(made) if target == "ort" else ()
    if not names:
        return ()
    key, value = KEEP_FLOATS
    which = f"'{names[0]}'{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
    return (
        f"ONNX Runtime makes {which} int8, which the model leaves float between 8-bit layers, unless its "
        f"session has {key}={value}; engines of `quantrt build` have it",
    )


def _show_failed(data: dict[str, Any]) -> None:
    from quantrt.report.inspect.budget import show_budget
    from quantrt.report.tables import facts, show, verdict

    show_budget(data["budget"])
    show("", verdict(False, f"{data['message']}; nothing is written"))
    show(facts([("got", data["got"]), ("expected", data["expected"]), ("try", data["hint"])]))


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.inspect.budget import show_budget
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
    if "budget" in data:
        show_budget(data["budget"])


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
            "at most 1 % of top-1 lost: harmful layers stay float",
            "quantrt quantize model.onnx --calib-data calib.npz --valid-data valid.npz --max-drop 0.01 "
            "--target tensorrt -o model.trt.onnx",
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
