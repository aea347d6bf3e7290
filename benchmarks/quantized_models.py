# SPDX-License-Identifier: Apache-2.0
"""Models that others quantized, run by every engine: `python -m benchmarks.quantized_models [FILE.onnx ...]`.

Without files, those of ../shared/data/qdq_models. What is right is the file as it is written, in ONNX Runtime
without its rewrites. Against it stand ONNX Runtime with its kernels for codes, OpenVINO, and the program for
a GPU, whose steps are computed by its reference tactics on this CPU, in int8 or FP8 and float16.
A second run adds its files. Results go to docs/results/quantized-models.json, a page beside it.
"""

__all__ = ["measure", "page", "prep_of"]

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from benchmarks.pages.page import number, table
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.real_data import DATA, cifar_images, imagenet_images, toycar_windows, upsample
from quantrt.config import CudaConfig
from quantrt.errors import QuantRtError
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.quantize.explicit.read import read
from quantrt.reference.metrics import Error
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.runtime.executor import open_executor
from quantrt.tactics.cuda.lower import CudaLowering

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "quantized-models.json"
PACKAGES = ("onnxruntime", "openvino", "onnx", "numpy", "torch")
BATCH = 10
CIFAR_PICTURES = 400
IMAGENET_PICTURES = 100
ENGINES = ("onnxruntime", "openvino", "cuda")
PRODUCTS = (
    "Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul",
)  # fmt: skip
PIXELS = {"order": "rgb", "mean": [127.5] * 3, "std": [127.5] * 3}
UNIT_PIXELS = {"order": "rgb", "mean": [0] * 3, "std": [255] * 3}

HEAD = """# Models that others quantized

Each file as it is written, in ONNX Runtime without its rewrites, is what is right: its top-1 is "source", beside it those of the
engines, and the SQNR in dB of an engine's outputs is against its outputs, `=` where no bit differs. Where sums are rounded in
another order, a value next to the middle between two codes falls to either, and 25 to 50 dB are usual between two engines that
are both right. The GPU's program is run by its reference tactics on a CPU, in codes and float16; no GPU was used. "products" are
those of codes there, of all. The standard error of a top-1 of 400 pictures is 2 points, of 100 pictures 5: predictions say more,
and "agrees" is the share of those that are the source's.

Files called `tflite_` and `ort_` are TensorFlow Lite's and ONNX Runtime's, with symmetric activations; those with a point are ResNet-20
quantized by `python -m benchmarks.foreign_models`: `mo` is Model-Optimizer, `nncf` NNCF, `ort` ONNX Runtime;
`pt2e` is torchao's PT2E quantizers for XNNPACK and x86 on the same network in torch, exported by torch.onnx; `torch` is that
network with torch's fake-quantize functions, exported through TorchScript, as NVIDIA's pytorch-quantization exports its modules.
Written by `python -m benchmarks.quantized_models [FILE.onnx ...]`; figures in [quantized-models.json](quantized-models.json).
"""  # noqa: E501

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Array]


def main() -> None:
    parser = argparse.ArgumentParser(description="Models that others quantized, run by every engine.")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE.onnx")
    files = parser.parse_args().files or sorted((DATA / "qdq_models").glob("t*.qdq.onnx")) + sorted(
        (DATA / "qdq_models").glob("o*.qdq.onnx")
    )
    results = load_results(RESULTS, PACKAGES)
    for path in files:
        name = path.name.removesuffix(".onnx").removesuffix(".qdq")
        results["models"][name] = measure(path) | {"commit": commit()}
        print(name, results["models"][name])
        write_results(RESULTS, results, page(results))


def measure(path: Path) -> dict[str, Any]:
    """Scores of the source and of every engine, on the same samples."""
    model = load_model(path)
    samples, labels = _samples(path.name)
    spec = model.inputs[0]
    fixed = spec.shape[0] if spec.shape is not None and isinstance(spec.shape[0], int) else BATCH
    batches = [
        {spec.name: samples[start : start + fixed]} for start in range(0, len(samples) - fixed + 1, fixed)
    ]
    labels = None if labels is None else labels[: len(batches) * fixed]
    want = _outputs(_source(path), batches)
    row: dict[str, Any] = {"samples": len(want), "source": _top1(want, labels), "engines": {}}
    for engine in ENGINES:
        try:
            run, facts = _opened(engine, model, batches[0])
            got = _outputs(run, batches)
        except QuantRtError as refused:
            row["engines"][engine] = {"error": refused.message}
            continue
        error = Error()
        error.add(want, got)
        row["engines"][engine] = {
            "sqnr_db": None if np.isinf(error.sqnr_db) else error.sqnr_db,
            "top1": _top1(got, labels),
            "agrees": float(np.mean(want.argmax(-1) == got.argmax(-1))) if _decides(path.name) else None,
            **facts,
        }
    return row


def _samples(name: str) -> tuple[Array, Array | None]:
    """Inputs of a file by its name, and their classes where they are known."""
    if "cifar10" in name:
        task = next(key for key in _CIFAR if key in name)
        images, labels = cifar_images("validation", CIFAR_PICTURES, prep_of(task))
        return (upsample(images) if "upsample" in prep_of(task) else images), labels
    if "mobilenet_v" in name and "vww" not in name:
        prep = (
            {**PIXELS, "size": 128, "resize": 146}
            if "_128_" in name
            else {**PIXELS, "size": 224, "resize": 256}
        )
        images, labels = imagenet_images("validation", IMAGENET_PICTURES, prep)
        return images, labels
    if "vww" in name:
        images, _ = imagenet_images(
            "validation", IMAGENET_PICTURES, {**UNIT_PIXELS, "size": 96, "resize": 96}
        )
        return images, None
    if "toycar" in name:
        return toycar_windows()[1::2], None
    from benchmarks.tasks.real_tasks import load_task

    spoken = load_task("kws_dscnn", DATA)
    return next(iter(spoken.validation))["input"], None


_CIFAR = (
    "cifar10_resnet20",
    "cifar10_resnet8_large",
    "cifar10_resnet8",
    "cifar10_vit_tiny_d9",
    "cifar10_mobilenetv3_small",
)


def prep_of(task: str) -> dict[str, Any]:
    """How the pictures of a model are prepared."""
    prep: dict[str, Any] = json.loads((DATA / "models.json").read_text(encoding="utf-8"))[task]["prep"]
    return prep


def _decides(name: str) -> bool:
    """Whether the outputs of a model are scores of classes."""
    return "toycar" not in name


def _source(path: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: np.asarray(session.run(None, dict(feed))[0])


def _opened(engine: str, model: Model, feed: Mapping[str, Array]) -> tuple[Run, dict[str, Any]]:
    if engine == "cuda":
        return _program(model, feed)
    lower: Callable[[Any], LibraryModel] = (
        lower_to_onnxruntime if engine == "onnxruntime" else lower_to_openvino
    )
    name = model.outputs[0].name
    executor = open_executor(lower(model.graph), ExecOptions(), output_names=[name])
    return lambda feed: executor.run(feed)[name], {}


def _program(model: Model, feed: Mapping[str, Array]) -> tuple[Run, dict[str, Any]]:
    given = for_gpu(model)
    found = read(given)
    products = [row for row in found.placement.decisions if row.op_type in PRODUCTS]
    reasons = sorted({row.reason for row in products if not row.is_int8})
    own = replace(given, graph=found.graph)
    config = CudaConfig(builder_optimization_level=0)
    lowering = CudaLowering(own, config, dict(feed), gpu=gpu_named("h200"), device="cpu")
    program = lowering.reference(found, "fp16")
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    name = model.outputs[0].name
    facts = {"in_codes": sum(row.is_int8 for row in products), "products": len(products), "reasons": reasons}
    return lambda feed: executor.run(feed)[name], facts


def _outputs(run: Run, batches: list[dict[str, Array]]) -> Array:
    found = np.concatenate([np.asarray(run(feed), np.float32) for feed in batches])
    return found.reshape(len(found), -1)


def _top1(outputs: Array, labels: Array | None) -> float | None:
    if labels is None:
        return None
    classes = outputs[:, 1:] if outputs.shape[1] == 1001 else outputs
    return float(np.mean(classes.argmax(1) == labels))


def page(results: dict[str, Any]) -> str:
    """Markdown of all files."""
    engines = (
        cell for name in ("ONNX Runtime", "OpenVINO", "GPU program") for cell in (name, "dB", "agrees")
    )
    head = ("file", "samples", "source", *engines, "products")
    rows = [[name, *_cells(row)] for name, row in sorted(results["models"].items())]
    notes = sorted(
        {reason for row in results["models"].values() for reason in row["engines"]["cuda"].get("reasons", ())}
    )
    commits = sorted({row["commit"] for row in results["models"].values()})
    text = [HEAD, machine_line(results["environment"]), "", table(head, rows)]
    errors = sorted(
        f"{name}, {engine}: {found['error']}"
        for name, row in results["models"].items()
        for engine, found in row["engines"].items()
        if "error" in found
    )
    if errors:
        text += ["What could not be run:", "", *(f"- {error}" for error in errors), ""]
    text += ["Why products of a GPU's program are in floats:", ""]
    return "\n".join([*text, *(f"- {note}" for note in notes), "", f"Commits: {', '.join(commits)}.", ""])


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [str(row["samples"]), number(row["source"], 3)]
    for engine in ENGINES:
        found = row["engines"][engine]
        if "error" in found:
            cells += ["cannot", "", ""]
        else:
            cells += [
                number(found["top1"], 3),
                "=" if found["sqnr_db"] is None else number(found["sqnr_db"], 1),
                number(found["agrees"], 3),
            ]
    cuda = row["engines"]["cuda"]
    return [*cells, f"{cuda['in_codes']}/{cuda['products']}" if "products" in cuda else ""]


if __name__ == "__main__":
    main()
