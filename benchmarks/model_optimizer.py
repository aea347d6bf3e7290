# SPDX-License-Identifier: Apache-2.0
"""Model-Optimizer's int8, made by the Python that has it: `PYTHON benchmarks/model_optimizer.py ...`.

nvidia-modelopt[onnx] wants packages of its own, so `model_optimizer_int8` runs this file in another process:

    PYTHON benchmarks/model_optimizer.py SOURCE SAMPLES METHOD TARGET

SAMPLES is an .npz of single samples, each input's array called by `N/INPUT`; METHOD is max or entropy.
"""

__all__ = ["model_optimizer_int8", "model_optimizer_version"]

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Sample = dict[str, npt.NDArray[Any]]

LIMIT_S = 3600.0
"""Seconds that the other process may take."""


def model_optimizer_int8(
    source: Path,
    target: Path,
    calibration: Sequence[Sample],
    *,
    python: Path,
    method: Literal["max", "entropy"],
) -> None:
    """`modelopt.onnx.quantization.quantize` to int8, what is not int8 in f32, with its defaults otherwise.

    Args:
        python: of an environment with nvidia-modelopt[onnx].

    Raises:
        RuntimeError: the other process failed; with its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder, "samples.npz")
        arrays = {
            f"{index}/{name}": array
            for index, sample in enumerate(calibration)
            for name, array in sample.items()
        }
        np.savez(samples, **arrays)  # type: ignore[arg-type]
        own = shutil.copy(source, folder)  # it writes the file that it reads again
        command = [str(part) for part in (python, "-P", Path(__file__), own, samples, method, target)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=folder
        )
    if done.returncode != 0 or not target.exists():
        raise RuntimeError(
            (done.stderr.strip() or done.stdout.strip() or "it wrote no file").splitlines()[-1]
        )


def model_optimizer_version(python: Path) -> str:
    """That of nvidia-modelopt in an environment."""
    code = "from importlib.metadata import version; print(version('nvidia-modelopt'))"
    command = [str(python), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Quantize one file, in an environment with Model-Optimizer."""
    from modelopt.onnx.quantization import quantize
    from onnxruntime.quantization import CalibrationDataReader

    parser = argparse.ArgumentParser(description="Model-Optimizer's int8 of an ONNX file.")
    parser.add_argument("source", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("method", choices=["max", "entropy"])
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    samples = _read(args.samples)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Sample] = iter(samples)

        def get_next(self) -> Sample | None:
            return next(self._left, None)

        def rewind(self) -> None:
            self._left = iter(samples)

        def get_first(self) -> Sample:
            return samples[0]

    quantize(
        str(args.source),
        quantize_mode="int8",
        calibration_method=args.method,
        calibration_data_reader=Reader(),
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        output_path=str(args.target),
    )


def _read(path: Path) -> list[Sample]:
    samples: dict[int, Sample] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            index, name = key.split("/", 1)
            samples.setdefault(int(index), {})[name] = arrays[key]
    return [samples[index] for index in sorted(samples)]


if __name__ == "__main__":
    main()
