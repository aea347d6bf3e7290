# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.calibration`."""

__all__ = ["calibration_page"]

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages.page import number, table

HEAD = """# Calibration: time and memory

ResNet-50, 224×224, each job in a process of its own. `quantrt` takes statistics of 73 activations (17.0
million values a sample) and chooses all ranges with the method `auto`; `quantrt_default` is all that
`quantrt quantize --target openvino` does without options, to the model that is written; `nncf` is
`nncf.quantize` with its defaults, which also places quantizers and corrects biases; `ort_minmax` and
`ort_entropy` are ONNX Runtime's calibrators, to ranges. CPU seconds add up all threads; unlike seconds they
bear other work on the machine.
{packages}.

"""

TAIL = """
Memory of ranges is the same for 128, 512, 2,048 and 10,000 samples.

Reproduce: `python -m benchmarks.models MODELS resnet50 && python -m benchmarks.calibration
MODELS/resnet50.onnx --samples 128 --peers ort_entropy:128 nncf:128 quantrt_default:512 nncf:512`, which adds
its rows (ONNX Runtime's entropy calibrator needs 15 GB).
"""

COLUMNS = ("job", "samples", "seconds", "CPU seconds", "ms per sample", "peak MB", "commit", "")
FIRST_MACHINE = "AMD EPYC (Zen 4), 2 cores, AVX512-VNNI"
"""Of runs that do not name theirs."""
PEERS = ("nncf", "ort_minmax", "ort_entropy")

Run = Mapping[str, Any]


def calibration_page(results: Mapping[str, Any]) -> str:
    """Markdown: a table for each machine, the last first, and what its runs say of each other."""
    by_machine: dict[str, list[Run]] = {}
    for run in results["runs"]:
        by_machine.setdefault(run.get("machine", FIRST_MACHINE), []).append(run)
    packages = ", ".join(f"{name} {version}" for name, version in results["packages"].items())
    parts = [HEAD.format(packages=packages)]
    for machine, runs in reversed(by_machine.items()):
        lines = "".join(_compared(runs))
        parts.append(f"## {machine}\n\n{table(COLUMNS, [_line(run) for run in runs])}\n{lines}\n")
    return "".join(parts).rstrip() + "\n" + TAIL


def _line(run: Run) -> list[str]:
    return [
        run["job"],
        str(run["samples"]),
        number(run["seconds"], 1),
        number(run.get("cpu_seconds"), 1),
        number(run["ms_per_sample"], 0),
        number(run["peak_mb"], 0),
        run["commit"],
        run["note"],
    ]


def _compared(runs: Sequence[Run]) -> Iterator[str]:
    """The last run of each job on a number of samples, beside the last of each peer's on as many."""
    last = {(run["job"], run["samples"]): run for run in runs if "cpu_seconds" in run}
    for (job, samples), run in last.items():
        for peer in PEERS:
            other = last.get((peer, samples))
            if job.startswith("quantrt") and other is not None:
                cpu, memory = (run[key] / other[key] for key in ("cpu_seconds", "peak_mb"))
                yield f"- `{job}`, {samples} samples: {cpu:.2f} of the CPU seconds of `{peer}`, "
                yield f"{memory:.2f} of its memory.\n"
