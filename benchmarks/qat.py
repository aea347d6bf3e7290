# SPDX-License-Identifier: Apache-2.0
"""Quantization after training and training with it, side by side: `python -m benchmarks.qat [ROW ...]`.

Two trained CIFAR-10 networks, by the rules for ONNX Runtime, in 8 bits and with weights of 4 bits. Trained on
1000 pictures of CIFAR-10's training set, from the float network's outputs alone; judged on its test
set, which neither calibration nor training sees. Results go to docs/results/qat-cpu.json, a page beside it. A
second run adds rows.
"""

__all__ = ["measure", "page"]

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import nn

from benchmarks.cifar_nets import load_cifar_net
from benchmarks.page import row_notes, table
from benchmarks.real_data import DATA, cifar_images
from benchmarks.record import commit, load_results, machine_line, write_results
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.equalized import make_twins
from quantrt.quantize.fit import FIT_SAMPLES, fit, observe_reference
from quantrt.quantize.qdq import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.torch.qat import PreparedModel, convert, distillation_loss, prepare

PACKAGES = ("onnxruntime", "onnxscript", "torch", "onnx", "numpy")
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "qat-cpu.json"
CALIBRATION_SAMPLES = 128
JUDGE_BATCH = 100
COMPARED = 500
"""Pictures on which the decisions of the forward and of the integer engine are compared."""
SHIFT = 2
"""Pixels that pictures are moved by at most, either way, while training."""

HEAD = """# Quantization-aware training on a CPU

Trained CIFAR-10 networks by the rules for ONNX Runtime (uint8 activations, int8 or 4-bit weights per channel, scales learned),
run by ONNX Runtime's integer kernels. `PTQ` is what `quantrt quantize` makes from {calibration} pictures: range methods, bias
correction, equalization and SmoothQuant, the best of them by output error. `QAT` starts from calibrated scales and trains weights and scales
on 1000 pictures of CIFAR-10's training set, mirrored and moved by up to {shift} pixels, from the float network's outputs alone.
Judged on pictures of the test set, which neither has seen. Top-1 in points, the drop against FP32; agreement asks how often
the decision is FP32's. The standard error of a drop is that of its pictures, paired. `forward` compares decisions of the
prepared module with those of its converted model, on {compared} pictures.

4-bit weights are stored as int8 codes of -7..7: they show what training recovers, and save nothing here.

Written by `python -m benchmarks.qat`; figures in [qat-cpu.json](qat-cpu.json).
"""  # noqa: E501

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        weight_qmax: largest code of weights: 127, or 7 for 4 bits.
        lr: of Adam, at the start; it falls as a half cosine.
        judged: pictures of the test set.
    """

    net: str
    weight_qmax: int
    steps: int
    batch: int
    lr: float
    judged: int

    @property
    def target(self) -> Target:
        return replace(ORT, weight_qmax=self.weight_qmax)


CASES = {
    "resnet20 int8": Case("cifar10_resnet20", 127, steps=60, batch=50, lr=1e-4, judged=5000),
    "resnet20 4-bit weights": Case("cifar10_resnet20", 7, steps=100, batch=50, lr=1e-3, judged=5000),
    "vit int8": Case("cifar10_vit_tiny_d9", 127, steps=20, batch=16, lr=2e-5, judged=1000),
    "vit 4-bit weights": Case("cifar10_vit_tiny_d9", 7, steps=40, batch=16, lr=1e-4, judged=1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="PTQ and QAT side by side.")
    parser.add_argument("rows", nargs="*", default=tuple(CASES), choices=[[], *CASES], metavar="ROW")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a second one waits more than it computes on a machine that others use
    for name in args.rows:
        row = measure(CASES[name])
        results = load_results(args.out, PACKAGES)
        results["models"][name] = row
        write_results(args.out, results, page(results))
        print(name, json.dumps(row))


def measure(case: Case) -> dict[str, Any]:
    """FP32, PTQ and QAT of one network."""
    torch.manual_seed(0)
    path = DATA / "models" / f"{case.net}.onnx"
    prep = json.loads((DATA / "models.json").read_text(encoding="utf-8"))[case.net]["prep"]
    pictures, _ = cifar_images("calibration", None, prep)
    judged, labels = cifar_images("validation", case.judged, prep)
    floats = _logits(load_model(path).graph, judged)
    row: dict[str, Any] = {
        "fp32_top1": _top1(floats, labels),
        "ptq": _judge(_logits(_ptq(path, pictures, case.target), judged), floats, labels),
        "steps": case.steps,
        "batch": case.batch,
        "lr": case.lr,
        "trained_on": len(pictures),
        "judged_on": len(judged),
    }
    net = load_cifar_net(path)
    batches = list(torch.from_numpy(pictures[:CALIBRATION_SAMPLES]).split(50))
    prepared = prepare(net, batches[0], batches, target=case.target)
    row["start"] = _judge(_logits(convert(prepared), judged), floats, labels)
    row["losses"] = _train(prepared, net, torch.from_numpy(pictures), case)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "net.onnx"
        made = _logits(convert(prepared, file), judged)
        row["size_bytes"] = file.stat().st_size
    row["qat"] = _judge(made, floats, labels)
    with torch.no_grad():
        forward = prepared(torch.from_numpy(judged[:COMPARED])).numpy()
    row["forward_agrees"] = int((forward.argmax(1) == made[:COMPARED].argmax(1)).sum())
    row["compared"] = COMPARED
    row["commit"] = commit()
    return row


def _train(prepared: PreparedModel, net: nn.Module, pictures: torch.Tensor, case: Case) -> list[float]:
    """A plain training loop; mean losses of its quarters. The module is left in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(prepared.parameters(), lr=case.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, case.steps)
    losses = []
    prepared.train()
    for _ in range(case.steps):
        chosen = torch.randint(0, len(pictures), (case.batch,), generator=generator)
        images = _moved(pictures[chosen], generator)
        with torch.no_grad():
            wanted = net(images)
        loss = distillation_loss(prepared(images), wanted, temperature=2.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        print(f"step {len(losses)} of {case.steps}: {losses[-1]:.5f}", flush=True)
    prepared.eval()
    return [round(float(np.mean(part)), 5) for part in np.array_split(losses, 4)]


def _moved(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirrored or not, each, and moved by up to SHIFT pixels, all alike; edges are repeated."""
    is_mirrored = torch.rand(len(images), generator=generator) < 0.5
    images = torch.where(is_mirrored[:, None, None, None], images.flip(3), images)
    padded = nn.functional.pad(images, (SHIFT,) * 4, mode="replicate")
    row, column = torch.randint(0, 2 * SHIFT + 1, (2,), generator=generator).tolist()
    return padded[:, :, row : row + images.shape[2], column : column + images.shape[3]]


def _ptq(path: Path, pictures: Array, target: Target) -> ir.Model:
    """What `quantrt quantize` makes."""
    model, config, options = load_model(path), QuantizeConfig(), CalibrationConfig()
    samples = open_dataset({model.inputs[0].name: pictures[:CALIBRATION_SAMPLES]}, model.inputs)
    stats = collect(model, observed_values(model, (target,), config), samples, options)
    batches = [batch.inputs for batch in samples.batches(1, FIT_SAMPLES)]
    reference = observe_reference(model, batches, config, make_twins(model, samples, config))
    return write(fit(model, stats, target, reference, config=config, calibration=options).model)


def _logits(model: ir.Model, images: Array) -> Array:
    session = float_session(model, threads=1)
    name = session.get_inputs()[0].name
    parts = [session.run(None, {name: part})[0] for part in np.split(images, len(images) // JUDGE_BATCH)]
    return np.concatenate(parts)


def _top1(logits: Array, labels: Array) -> float:
    return 100.0 * float((logits.argmax(1) == labels).mean())


def _judge(logits: Array, floats: Array, labels: Array) -> dict[str, float]:
    """Top-1, its drop against FP32 with standard error, and agreement with FP32, all in points."""
    lost = (floats.argmax(1) == labels).astype(float) - (logits.argmax(1) == labels)
    noise = float(np.square(logits - floats).sum() / np.square(floats).sum())
    return {
        "top1": _top1(logits, labels),
        "drop": 100.0 * float(lost.mean()),
        "drop_se": 100.0 * float(lost.std() / np.sqrt(len(lost))),
        "agreement": 100.0 * float((logits.argmax(1) == floats.argmax(1)).mean()),
        "sqnr_db": -10.0 * float(np.log10(noise)),
    }


def page(results: dict[str, Any]) -> str:
    """Markdown."""
    head = HEAD.format(calibration=CALIBRATION_SAMPLES, shift=SHIFT, compared=COMPARED)
    rows = [line for name, row in results["models"].items() for line in _lines(name, row)]
    columns = ("", "", "judged on", "top-1", "drop", "agreement", "SQNR dB", "steps", "forward")
    commits = sorted({row["commit"] for row in results["models"].values()})
    where = f"{machine_line(results['environment'])} Commit {', '.join(commits)}."
    return f"{head}\n{where}\n\n{table(columns, rows)}{row_notes(results['models'])}"


def _lines(name: str, row: dict[str, Any]) -> Sequence[Sequence[str]]:
    def cells(part: dict[str, float]) -> list[str]:
        drop = f"{part['drop']:.2f} ± {part['drop_se']:.2f}"
        return [f"{part['top1']:.2f}", drop, f"{part['agreement']:.2f}", f"{part['sqnr_db']:.1f}"]

    steps = f"{row['steps']} of {row['batch']}"
    return (
        (name, "FP32", str(row["judged_on"]), f"{row['fp32_top1']:.2f}", "", "", "", "", ""),
        ("", "PTQ", "", *cells(row["ptq"]), "", ""),
        ("", "QAT, before training", "", *cells(row["start"]), "", ""),
        ("", "QAT", "", *cells(row["qat"]), steps, f"{row['forward_agrees']} of {row['compared']}"),
    )


if __name__ == "__main__":
    main()
