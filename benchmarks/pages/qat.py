# SPDX-License-Identifier: Apache-2.0
"""The page of tables that `benchmarks.qat` writes beside its results."""

__all__ = ["qat_page"]

from collections.abc import Sequence
from typing import Any

from benchmarks.pages.page import row_notes, table
from benchmarks.record import machine_line

HEAD = """# Quantization-aware training

Trained CIFAR-10 networks by the rules for ONNX Runtime (uint8 activations, int8 or 4-bit weights per channel, scales learned),
run by ONNX Runtime's integer kernels on a CPU, whatever trained them. `PTQ` is the prepared module converted before any step, from
{calibration} pictures: the codes that `quantrt quantize --smoothing folded --adaptive-rounding` gives the exported module, by range
methods, bias correction, equalization, SmoothQuant and AdaRound, the best of them by output error. `QAT` starts there, and trains
weights, biases and scales on pictures of CIFAR-10's training set, moved, mirrored and pasted into each other, from the float
network's outputs alone. The state that is kept is the one with the least output error on other pictures of the training set,
`held out`, that before training among them: there QAT cannot fall below PTQ.

Judged on pictures of the test set, which nothing above has seen. Top-1 in points, the drop against FP32; agreement asks how often
the decision is FP32's. The standard error of a drop is that of its pictures, paired. `forward` compares decisions of the prepared
module with those of its converted model.

4-bit weights are stored as int8 codes of -7..7: they show what training recovers, and save nothing here.

Written by `python -m benchmarks.qat`; figures in [{file}]({file}).
"""  # noqa: E501

JUDGED = ("", "", "judged on", "top-1", "drop", "agreement", "SQNR dB", "forward")
TRAINED = ("", "on", "steps", "batch", "first rate", "s", "held out before, dB", "kept, dB", "kept at step")


def qat_page(results: dict[str, Any], *, file: str, calibration: int) -> str:
    """Markdown.

    Args:
        file: name of the figures' file.
        calibration: pictures that PTQ sees.
    """
    models = results["models"]
    commits = ", ".join(sorted({row["commit"] for row in models.values()}))
    return "\n".join(
        (
            HEAD.format(calibration=calibration, file=file),
            f"{machine_line(results['environment'])} Commit {commits}.\n",
            table(JUDGED, [line for name, row in models.items() for line in _judged(name, row)]),
            "## Training\n",
            table(TRAINED, [_trained(name, row) for name, row in models.items()]) + row_notes(models),
        )
    )


def _judged(name: str, row: dict[str, Any]) -> Sequence[Sequence[str]]:
    def cells(part: dict[str, float]) -> list[str]:
        drop = f"{part['drop']:.2f} ± {part['drop_se']:.2f}"
        return [f"{part['top1']:.2f}", drop, f"{part['agreement']:.2f}", f"{part['sqnr_db']:.1f}"]

    return (
        (name, "FP32", str(row["judged_on"]), f"{row['fp32_top1']:.2f}", "", "", "", ""),
        ("", "PTQ", "", *cells(row["ptq"]), ""),
        ("", "QAT", "", *cells(row["qat"]), f"{row['forward_agrees']} of {row['compared']}"),
    )


def _trained(name: str, row: dict[str, Any]) -> Sequence[str]:
    course = row["course"]
    return (
        name,
        row["device"],
        str(course["steps"]),
        str(row["batch"]),
        f"{row['rate']:g}",
        f"{course['train_s']:.0f}",
        f"{course['held_start_db']:.2f}",
        f"{course['held_best_db']:.2f}",
        str(course["best_step"]),
    )
