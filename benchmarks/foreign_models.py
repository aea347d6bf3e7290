# SPDX-License-Identifier: Apache-2.0
"""Real models quantized by other tools: `python -m benchmarks.foreign_models TOOL FOLDER`.

TOOL is ort, nncf, mo (nvidia-modelopt[onnx]), pt2e (torchao's quantizers, through torch.onnx) or torch
(fake-quantized modules through TorchScript, as NVIDIA's pytorch-quantization exports its own); each wants its
own packages installed. All of them see the same CALIBRATION pictures and their own defaults otherwise. FOLDER
gets a file for every kind of codes, called MODEL.TOOL_KIND.onnx.
"""

__all__ = ["main"]

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from benchmarks.quantized_models import prep_of
from benchmarks.tasks.real_data import DATA, cifar_images

MODELS = ("cifar10_resnet20", "cifar10_vit_tiny_d9")
CALIBRATION = 32
BATCH = 8

Array = npt.NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Real models quantized by other tools.")
    parser.add_argument("tool", choices=sorted(TOOLS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        pictures, _ = cifar_images("calibration", CALIBRATION, prep_of(name))
        TOOLS[args.tool](DATA / "models" / f"{name}.onnx", pictures, args.folder)


def _input(path: Path) -> str:
    return str(onnx.load(path, load_external_data=False).graph.input[0].name)


def _ort(path: Path, pictures: Array, folder: Path) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches: Iterator[dict[str, Array]] = iter(
                {_input(path): pictures[start : start + BATCH]} for start in range(0, len(pictures), BATCH)
            )

        def get_next(self) -> dict[str, Array] | None:
            return next(self._batches, None)

    u8, s8, s4, u16 = QuantType.QUInt8, QuantType.QInt8, QuantType.QInt4, QuantType.QUInt16
    kinds = {
        "qdq_u8s8": (QuantFormat.QDQ, u8, s8),
        "qdq_s8s8": (QuantFormat.QDQ, s8, s8),
        "qdq_u16s8": (QuantFormat.QDQ, u16, s8),
        "qdq_s8s4": (QuantFormat.QDQ, s8, s4),
        "qoperator_u8s8": (QuantFormat.QOperator, u8, s8),
    }
    for kind, (form, activations, weights) in kinds.items():
        quantize_static(
            path,
            folder / f"{path.stem}.ort_{kind}.onnx",
            Reader(),
            quant_format=form,
            activation_type=activations,
            weight_type=weights,
            per_channel=True,
        )
    quantize_dynamic(path, folder / f"{path.stem}.ort_dynamic.onnx", weight_type=s8, per_channel=True)


def _nncf(path: Path, pictures: Array, folder: Path) -> None:
    import nncf

    name = _input(path)
    kind = nncf.ModelType.TRANSFORMER if "vit" in path.stem else None
    samples = nncf.Dataset([{name: pictures[index : index + 1]} for index in range(len(pictures))])
    for preset in (nncf.QuantizationPreset.PERFORMANCE, nncf.QuantizationPreset.MIXED):
        made = nncf.quantize(
            onnx.load(path), samples, preset=preset, subset_size=len(pictures), model_type=kind
        )
        onnx.save(made, folder / f"{path.stem}.nncf_{preset.value}.onnx")


def _model_optimizer(path: Path, pictures: Array, folder: Path) -> None:
    from modelopt.onnx.quantization import quantize

    kinds = {
        "int8_max": ("int8", "max", "fp32"),
        "int8_entropy": ("int8", "entropy", "fp32"),
        "int8_fp16": ("int8", "max", "fp16"),
        "fp8_max": ("fp8", "max", "fp32"),
        "int4_rtn": ("int4", "rtn_dq", "fp32"),
    }
    for kind, (mode, method, floats) in kinds.items():
        quantize(
            str(path),
            quantize_mode=mode,
            calibration_method=method,
            calibration_data={_input(path): pictures},
            calibration_eps=["cpu"],
            high_precision_dtype=floats,
            output_path=str(folder / f"{path.stem}.mo_{kind}.onnx"),
        )


def _pt2e(path: Path, pictures: Array, folder: Path) -> None:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import (
        convert_pt2e,
        prepare_pt2e,
    )
    from torchao.quantization.pt2e.quantizer import (
        x86_inductor_quantizer as x86,
    )
    from torchao.testing.pt2e import (
        _xnnpack_quantizer as xnnpack,
    )

    from benchmarks.nets.cifar_nets import load_cifar_net

    batches = torch.from_numpy(pictures).split(BATCH)
    quantizers = {
        "x86": x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config()),
        "xnn": xnnpack.XNNPACKQuantizer().set_global(
            xnnpack.get_symmetric_quantization_config(is_per_channel=True)
        ),
    }
    for kind, quantizer in quantizers.items():
        net = torch.export.export(load_cifar_net(path), (batches[0],)).module()
        prepared = prepare_pt2e(net, quantizer)
        for batch in batches:
            prepared(batch)
        made = torch.export.export(convert_pt2e(prepared), (batches[0],))
        program = torch.onnx.export(made, (batches[0],), dynamo=True)
        assert program is not None
        program.save(folder / f"{path.stem}.pt2e_{kind}.onnx")


def _torch(path: Path, pictures: Array, folder: Path) -> None:
    import torch

    from benchmarks.nets.cifar_nets import load_cifar_net
    from benchmarks.peers.fake_quantized import fake_quantized

    batches = torch.from_numpy(pictures).split(BATCH)
    made = fake_quantized(load_cifar_net(path), batches)
    target = folder / f"{path.stem}.torch_fake_quantize.onnx"
    torch.onnx.export(
        made,
        (batches[0],),
        target,
        dynamo=False,
        opset_version=17,
        input_names=["input"],
        output_names=["logits"],
        dynamic_axes={"input": {0: "batch"}},
    )


TOOLS: dict[str, Callable[[Path, Array, Path], None]] = {
    "mo": _model_optimizer,
    "nncf": _nncf,
    "ort": _ort,
    "pt2e": _pt2e,
    "torch": _torch,
}


if __name__ == "__main__":
    main()
