# SPDX-License-Identifier: Apache-2.0
"""Quantization after training and training with it, side by side: `python -m benchmarks.qat [ROW ...]`.

Trained CIFAR-10 networks, by the rules for ONNX Runtime, in 8 bits and with weights of 4 bits. Trained on
pictures of CIFAR-10's training set, on a CPU or a GPU, from the float network's outputs alone; judged on its
test set by ONNX Runtime on the CPU, which neither calibration nor training sees. Every row is written when it
is done, and printed as JSON: results go to docs/results/qat-cpu.json, or what `--out` says, a page beside it.
A second run adds rows.
"""

__all__ = ["CASES", "measure"]

import argparse
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

from benchmarks.cuda.timing import commit
from benchmarks.nets.cifar_nets import load_cifar_net
from benchmarks.pages.qat import qat_page
from benchmarks.qat_training import Training, signal_db, train
from benchmarks.record import load_results, write_results
from benchmarks.tasks.real_data import DATA, cifar_images, upsample
from quantrt.config import QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.torch.qat import convert, prepare

PACKAGES = ("onnxruntime", "onnxscript", "torch", "onnx", "numpy")
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "qat-cpu.json"
CONFIG = QuantizeConfig(smoothing="folded", adaptive_rounding=True)
"""Of quantization after training, where training starts: recipe `accurate` but for multiplications, which a
module has no place for."""
CALIBRATION_SAMPLES = 128
HELD_SAMPLES = 200
"""Of the training set's pictures: the last ones, which no step sees and the kept state is chosen by."""
JUDGE_BATCH = 100
LEAST_S = 1.0
"""Of training, whatever is left of a row's budget."""
COMPARED = 500
"""Pictures on which the decisions of the forward and of the integer engine are compared."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        weight_qmax: largest code of weights: 127, or 7 for 4 bits.
        rate: of training, the highest of the first pass.
    """

    net: str
    weight_qmax: int
    rate: float

    @property
    def target(self) -> Target:
        return replace(ORT, weight_qmax=self.weight_qmax)


CASES = {
    "vit int8": Case("cifar10_vit_tiny_d9", 127, rate=1e-5),
    "efficientvit int8": Case("cifar10_efficientvit_b0", 127, rate=3e-5),
    "resnet20 int8": Case("cifar10_resnet20", 127, rate=2e-5),
    "vit 4-bit weights": Case("cifar10_vit_tiny_d9", 7, rate=2e-4),
    "efficientvit 4-bit weights": Case("cifar10_efficientvit_b0", 7, rate=3e-4),
    "resnet20 4-bit weights": Case("cifar10_resnet20", 7, rate=3e-4),
}


@dataclass(frozen=True)
class Effort:
    """How much a row may cost.

    Attributes:
        device: that trains.
        judged: pictures of the test set.
        budget_s: of a row; training ends early for it, and leaves time to judge.
    """

    device: str
    steps: int
    batch: int
    judged: int
    budget_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description="PTQ and QAT side by side.")
    parser.add_argument("rows", nargs="*", default=tuple(CASES), metavar="ROW", help=f"of {', '.join(CASES)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="that trains")
    parser.add_argument("--steps", type=int, default=2000, help="at most")
    parser.add_argument("--batch", type=int, default=128, help="pictures of a step")
    parser.add_argument("--rate", type=float, help="Adam's, the highest, in place of the row's own")
    parser.add_argument("--judged", type=int, default=5000, help="pictures of the test set")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="of a row: training ends early for it"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    unknown = [name for name in args.rows if name not in CASES]
    if unknown:
        parser.error(f"no row '{unknown[0]}'; there are: {', '.join(CASES)}")
    torch.set_num_threads(min(torch.get_num_threads(), _threads()))
    torch.backends.cudnn.allow_tf32 = False  # values would not be those of float32, which the codes are of
    effort = Effort(args.device, args.steps, args.batch, args.judged, 60.0 * args.minutes)
    for name in args.rows:
        case = CASES[name] if args.rate is None else replace(CASES[name], rate=args.rate)
        row = measure(case, effort)
        results = load_results(args.out, PACKAGES)
        results["models"][name] = row
        text = qat_page(results, file=args.out.name, calibration=CALIBRATION_SAMPLES)
        write_results(args.out, results, text)
        print(json.dumps({name: row}), flush=True)


def measure(case: Case, effort: Effort) -> dict[str, Any]:
    """FP32, PTQ and QAT of one network."""
    began = time.perf_counter()
    torch.manual_seed(0)
    path = DATA / "models" / f"{case.net}.onnx"
    pictures, _ = _pictures(case.net, "calibration", None)
    judged, labels = _pictures(case.net, "validation", effort.judged)
    floats = _logits(load_model(path).graph, judged)
    net = load_cifar_net(path)
    batches = list(torch.from_numpy(pictures[:CALIBRATION_SAMPLES]).split(32))
    prepared = prepare(net, batches[0], batches, target=case.target, config=CONFIG)
    converting = time.perf_counter()
    ptq = _logits(convert(prepared), judged)
    left_s = effort.budget_s - (time.perf_counter() - began) - (time.perf_counter() - converting)
    on_device = torch.from_numpy(pictures).to(effort.device)
    course = train(
        prepared.to(effort.device),
        net.to(effort.device),
        on_device[:-HELD_SAMPLES],
        on_device[-HELD_SAMPLES:],
        Training(effort.steps, effort.batch, case.rate, max(left_s, LEAST_S)),
    )
    qat = _logits(convert(prepared), judged)
    compared = min(COMPARED, len(judged))
    with torch.no_grad():
        forward = prepared(torch.from_numpy(judged[:compared]).to(effort.device)).cpu().numpy()
    return {
        "fp32_top1": 100.0 * float((floats.argmax(1) == labels).mean()),
        "ptq": _judge(ptq, floats, labels),
        "qat": _judge(qat, floats, labels),
        "judged_on": len(judged),
        "forward_agrees": int((forward.argmax(1) == qat[:compared].argmax(1)).sum()),
        "compared": compared,
        "device": torch.cuda.get_device_name() if effort.device == "cuda" else "CPU",
        "batch": effort.batch,
        "rate": case.rate,
        "trained_on": len(pictures) - HELD_SAMPLES,
        "course": asdict(course),
        "wall_s": round(time.perf_counter() - began, 1),
        "commit": commit() or "unknown",
    }


def _pictures(net: str, part: str, count: int | None) -> tuple[Array, Array]:
    """Pictures as the network takes them, and labels."""
    prep = json.loads((DATA / "models.json").read_text(encoding="utf-8"))[net]["prep"]
    images, labels = cifar_images(part, count, prep)
    return upsample(images) if "upsample" in prep else images, labels


def _logits(model: ir.Model, images: Array) -> Array:
    session = float_session(model, threads=_threads())
    name = session.get_inputs()[0].name
    parts = (images[first : first + JUDGE_BATCH] for first in range(0, len(images), JUDGE_BATCH))
    return np.concatenate([session.run(None, {name: part})[0] for part in parts])


def _threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _judge(logits: Array, floats: Array, labels: Array) -> Mapping[str, float]:
    """Top-1, its drop against FP32 with standard error, and agreement with FP32, all in points."""
    lost = (floats.argmax(1) == labels).astype(float) - (logits.argmax(1) == labels)
    return {
        "top1": 100.0 * float((logits.argmax(1) == labels).mean()),
        "drop": 100.0 * float(lost.mean()),
        "drop_se": 100.0 * float(lost.std() / np.sqrt(len(lost))),
        "agreement": 100.0 * float((logits.argmax(1) == floats.argmax(1)).mean()),
        "sqnr_db": signal_db(torch.from_numpy(logits), torch.from_numpy(floats)),
    }


if __name__ == "__main__":
    main()
