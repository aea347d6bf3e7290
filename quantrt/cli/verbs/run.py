# SPDX-License-Identifier: Apache-2.0
"""`quantrt run`: engine or model + inputs -> outputs in an .npz file, or in one for every sample."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantrt.cli.command import Command, Result
from quantrt.cli.options.data import DATA_HELP, add_preprocess, data_source, open_data
from quantrt.cli.options.paths import check_output, check_output_folder
from quantrt.cli.verbs.run_outputs import FilePerSample, OneFile
from quantrt.errors import UsageError

if TYPE_CHECKING:
    from quantrt.calibrate.dataset import Dataset
    from quantrt.report.subject import Subject

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="engine (.qrt) or model (.onnx)")
    parser.add_argument("--inputs", type=data_source, required=True, metavar="P", help=f"inputs: {DATA_HELP}")
    add_preprocess(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT.npz|FOLDER",
        help="outputs to write: one file, or a folder with a file for every sample",
    )
    parser.add_argument(
        "--batch-size", type=int, default=1, metavar="N", help="samples per call (default: 1)"
    )
    parser.add_argument(
        "--max-samples", type=int, metavar="N", help="stop after this many samples (default: all)"
    )


def _run(args: argparse.Namespace) -> Result:
    from quantrt.report.subject import open_subject
    from quantrt.runtime.peak_memory import peak_memory

    _check_counts(args)
    output = _output(args)
    with open_subject(args.file) as subject:
        dataset = open_data(args.inputs, subject.inputs, preprocess=args.preprocess)
        samples = _run_all(subject, dataset, args, output)
        output.close()
        data = {
            "file": str(args.file),
            "output": str(args.output),
            "samples": samples,
            "outputs": output.facts,
            "peak_memory": peak_memory(),
            "notes": [*subject.notes, *output.notes(samples)],
        }
    return Result(data, lambda: _show(data))


def _output(args: argparse.Namespace) -> OneFile | FilePerSample:
    if args.output.suffix == ".npz":
        check_output(args.output, ".npz", reads=(args.inputs,))
        return OneFile(args.output)
    return FilePerSample(check_output_folder(args.output, reads=(args.inputs,)))


def _check_counts(args: argparse.Namespace) -> None:
    for flag, count in (("--batch-size", args.batch_size), ("--max-samples", args.max_samples)):
        if count is not None and count < 1:
            raise UsageError(f"cannot use {flag} {count}", expected="at least 1")


def _run_all(
    subject: Subject, dataset: Dataset, args: argparse.Namespace, output: OneFile | FilePerSample
) -> int:
    """How many samples there were."""
    from quantrt.report.progress import progress_bars
    from quantrt.report.subject import own_rows

    samples = 0
    with progress_bars(quiet=args.quiet) as bars:
        advance = bars.counter("running", "samples")
        for batch in dataset.batches(args.batch_size, args.max_samples):
            output.add(own_rows(subject.run(batch.inputs), batch, dataset), samples, batch.count)
            samples += batch.count
            advance(samples, None)
    return samples


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
    "the first axis. Where samples or what is found in them differ in shape, as of texts and of detectors, "
    "give a folder: it gets a file for every sample, 000000.npz and on.",
    examples=(
        ("an engine on arrays", "quantrt run model.qrt --inputs valid.npz -o outputs.npz"),
        (
            "the float model, eight samples at a time",
            "quantrt run model.onnx --inputs valid.npz --batch-size 8 -o float.npz",
        ),
        (
            "a file for every sample",
            "quantrt run detector.qrt --inputs photos/ --preprocess scale=1 -o boxes/",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
)
