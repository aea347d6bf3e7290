# SPDX-License-Identifier: Apache-2.0
"""Accuracy of int8 on a GPU beside int8 on a CPU: `python -m benchmarks.accuracy_cuda [NAME ...]`.

Each real network of convolutions is quantized by the rules of an engine for a GPU, with zero points and
without any, and by those of OpenVINO, whose activations are uint8 with zero points; from the same calibration
samples, equalized and with biases corrected where that is measured to be better, as a build does it. All are
written as QuantizeLinear and DequantizeLinear, which ONNX Runtime computes: the codes are those of the
engines, sums and everything else are float32. Results go to docs/results/accuracy-cuda.json, a page beside
it. A second run adds its models.
"""

__all__ = ["measure", "page"]

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import onnxruntime

from benchmarks.pages.page import number, table
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.judge import beside_floats, session_outputs
from benchmarks.tasks.real_tasks import load_task
from benchmarks.tasks.task import Task
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BuildConfig
from quantrt.ir.ort_options import KEEP_PAIRS
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.quantize.fit.equalized import make_twins
from quantrt.quantize.fit.fit import FIT_SAMPLES, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "accuracy-cuda.json"
NAMES = (
    "mobilenet_v1_025_224",
    "vww_mobilenet_v1_025_96",
    "cifar10_mobilenetv3_small",
    "cifar10_efficientvit_b0",
    "cifar10_resnet8",
    "cifar10_resnet8_large",
    "cifar10_resnet20",
    "cifar10_resnet56",
    "ultraface_rfb320",
)
RULES = {
    "CPU": OPENVINO,
    "GPU, symmetric": replace(CUDA, one_sided=None),
    "GPU": CUDA,
}

HEAD = """# Accuracy of int8 on GPUs

Real networks of convolutions by three tables of rules: that of an engine for a CPU (OpenVINO's: uint8 activations with zero
points), that of an engine for a GPU without zero points, and with them, which is what is built
([why](../decisions/0009-zero-points-on-gpus.md)). Written as QuantizeLinear and DequantizeLinear and computed by ONNX Runtime:
the codes are the engines', everything between them is float32. SQNR is of the first output against FP32, over the validation
samples. A score of 400 pictures moves by 0.25 points for one of them, and has a standard error of more than two; SQNR and
agreement are over many views of each and say more. Written by `python -m benchmarks.accuracy_cuda`; figures in
[accuracy-cuda.json](accuracy-cuda.json).
"""  # noqa: E501

Array = npt.NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of int8 on a GPU beside int8 on a CPU.")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help="default: all models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    results = load_results(args.out)
    for name in args.names:
        row = measure(load_task(name, Path()))
        results["models"][name] = row
        write_results(args.out, results, page(results))
        print(name, row)


def measure(task: Task) -> dict[str, Any]:
    """FP32, and the model by each table of rules."""
    model, config = for_gpu(load_model(task.path)), BuildConfig()
    samples = open_dataset(task.calibration, model.inputs)
    names = observed_values(model, tuple(RULES.values()), config.quantize)
    stats = collect(model, names, samples, config.calibration)
    twins = make_twins(model, samples, config.quantize)
    batches = [batch.inputs for batch in samples.batches(1, FIT_SAMPLES)]
    reference = observe_reference(model, batches, config.quantize, twins)
    wanted = _run(model.graph, task)
    found = {"FP32": beside_floats(task, wanted, wanted)}
    for label, target in RULES.items():
        fitted = fit(model, stats, target, reference, config=config.quantize, calibration=config.calibration)
        grids = fitted.model.activations.values()
        row = beside_floats(task, wanted, _run(write(fitted.model), task))
        row |= {"values": len(grids), "with_zero_point": sum(int(grid.zero_point) != 0 for grid in grids)}
        found[label] = {**row, "ranges": fitted.method}
    return {
        "commit": commit(),
        "calibration_samples": len(task.calibration),
        "validation_samples": len(wanted[0]),
        "score_name": "" if task.score is None else task.score.name,
        "rows": found,
    }


def _run(graph: ir.Model, task: Task) -> list[Array]:
    """Every output over the validation samples, [samples, ...], with floats between the codes."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*KEEP_PAIRS)
    data = ir.to_proto(graph).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session_outputs(session, task)


def page(results: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: dict[str, Any]) -> Iterator[str]:
    yield HEAD
    yield machine_line(results["environment"])
    yield ""
    head = ("model", "rules", "score", "agrees with FP32", "SQNR dB", "zero points of values", "ranges")
    rows = [
        (
            name if label == "FP32" else "",
            label,
            number(row["score"], 4),
            number(row["agreement_ratio"], 4),
            number(row["sqnr_db"], 2),
            f"{row['with_zero_point']} of {row['values']}" if "values" in row else "",
            row.get("ranges", ""),
        )
        for name, model in results["models"].items()
        for label, row in model["rows"].items()
    ]
    yield table(head, rows)


if __name__ == "__main__":
    main()
