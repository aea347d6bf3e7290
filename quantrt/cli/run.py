# SPDX-License-Identifier: Apache-2.0
"""`quantrt run`: engine or model + inputs -> outputs in an .npz file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.data import DATA_HELP, add_preprocess, data_source, open_data
from quantrt.cli.paths import check_output
from quantrt.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from quantrt.calibrate.dataset import Dataset
    from quantrt.report.subject import Subject

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="engine (.qrt) or model (.onnx)")
    parser.add_argument("--inputs", type=data_source, required=True, metavar="P", help=f"inputs: {DATA_HELP}")
    add_preprocess(parser)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT.npz", help="outputs to write"
    )
    parser.add_argument(
        "--batch-size", type=int, default=1, metavar="N", help="samples per call (default: 1)"
    )
    parser.add_argument(
        "--max-samples", type=int, metavar="N", help="stop after this many samples (default: all)"
    )


def _run(args: argparse.Namespace) -> Result:
    from quantrt.cli.write import write_arrays
    from quantrt.report.subject import open_subject
    from quantrt.runtime.peak_memory import peak_memory

    check_output(args.output, ".npz", reads=(args.inputs,))
    _check_counts(args)
    with open_subject(args.file) as subject:
        dataset = open_data(args.inputs, subject.inputs, preprocess=args.preprocess)
        outputs, samples = _run_all(subject, dataset, args)
        write_arrays(args.output, outputs)
        data = {
            "file": str(args.file),
            "output": str(args.output),
            "samples": samples,
            "outputs": {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in outputs.items()},
            "peak_memory": peak_memory(),
            "notes": list(subject.notes),
        }
    return Result(data, lambda: _show(data))


def _check_counts(args: argparse.Namespace) -> None:
    for flag, count in (("--batch-size", args.batch_size), ("--max-samples", args.max_samples)):
        if count is not None and count < 1:
            raise UsageError(f"cannot use {flag} {count}", expected="at least 1")


def _run_all(
    subject: Subject, dataset: Dataset, args: argparse.Namespace
) -> tuple[dict[str, np.ndarray], int]:
    """The outputs of all batches, joined along the sample axis, and how many samples there were."""
    from quantrt.cli.progress import progress_bars
    from quantrt.report.subject import own_rows

    parts: dict[str, list[np.ndarray]] = {}
    samples = 0
    with progress_bars(quiet=args.quiet) as bars:
        advance = bars.counter("running", "samples")
        for batch in dataset.batches(args.batch_size, args.max_samples):
            for name, array in own_rows(subject.run(batch.inputs), batch, dataset).items():
                parts.setdefault(name, []).append(array)
            samples += batch.count
            advance(samples, None)
    return {name: _join(name, arrays) for name, arrays in parts.items()}, samples


def _join(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One array of all batches.

    Raises:
        DataError: the shapes of two batches differ beyond the first axis.
    """
    import numpy as np

    arrays = [np.atleast_1d(array) for array in arrays]
    for array in arrays:
        if array.shape[1:] != arrays[0].shape[1:]:
            raise DataError(
                f"cannot put the batches of output '{name}' into one array",
                got=f"shapes {arrays[0].shape} and {array.shape}",
                hint="--max-samples 1, or samples of one shape only",
            )
    return np.concatenate(arrays)


def _show(data: dict[str, Any]) -> None:
    from quantrt.report.quantities import memory_text
    from quantrt.report.tables import heading, show, table

    rows = [
        (name, facts["dtype"], str(facts["shape"]).replace(" ", ""))
        for name, facts in data["outputs"].items()
    ]
    show(
        heading(f"{data['output']}: outputs of {data['samples']} samples"),
        table(("output", "dtype", "shape"), rows, left=("dtype", "shape"), fold=("output",)),
        f"peak memory of this process: {memory_text(data['peak_memory'])}",
        *(f"note: {note}" for note in data["notes"]),
    )


COMMAND = Command(
    name="run",
    summary="run an engine or a model on data, write the outputs",
    details="Run every sample and write the outputs to one .npz file: one array per output, samples along "
    "the first axis.",
    examples=(
        ("an engine on arrays", "quantrt run model.qrt --inputs valid.npz -o outputs.npz"),
        (
            "the float model, eight samples at a time",
            "quantrt run model.onnx --inputs valid.npz --batch-size 8 -o float.npz",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
