# SPDX-License-Identifier: Apache-2.0
"""A small transformer with outliers planted in one layer, and quantized engines of it for each library."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from quantrt.config import CudaConfig
from quantrt.device import describe_device
from quantrt.gpu import gpu_named
from quantrt.model.file.save import save_model
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel, Plan
from quantrt.plan.serialize import save_plan
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import ORT
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, samples

BLOCKS = 3
WIDTH, HIDDEN, WINDOWS, TOKENS, CLASSES = 16, 32, 2, 6, 5
PLANTED = "blocks_1_fc2_MatMul"
FACTOR = 300.0

BLOCK = """
  [blocks_{i}_norm] n{i} = LayerNormalization<axis = -1>(x{i}, gamma{i}, beta{i})
  [blocks_{i}_q_MatMul] q{i} = MatMul(n{i}, wq{i})
  [blocks_{i}_k_MatMul] k{i} = MatMul(n{i}, wk{i})
  [blocks_{i}_v_MatMul] v{i} = MatMul(n{i}, wv{i})
  [blocks_{i}_kt] kt{i} = Transpose<perm = [0, 1, 3, 2]>(k{i})
  [blocks_{i}_scores_MatMul] s{i} = MatMul(q{i}, kt{i})
  [blocks_{i}_softmax] p{i} = Softmax<axis = -1>(s{i})
  [blocks_{i}_mix_MatMul] m{i} = MatMul(p{i}, v{i})
  [blocks_{i}_proj_MatMul] t{i} = MatMul(m{i}, wo{i})
  [blocks_{i}_proj_Add] u{i} = Add(t{i}, bo{i})
  [blocks_{i}_add] a{i} = Add(x{i}, u{i})
  [blocks_{i}_fc1_MatMul] f{i} = MatMul(a{i}, w1{i})
  [blocks_{i}_fc1_Add] g{i} = Add(f{i}, b1{i})
  [blocks_{i}_relu] r{i} = Relu(g{i})
  [blocks_{i}_fc2_MatMul] h{i} = MatMul(r{i}, w2{i})
  [blocks_{i}_fc2_Add] o{i} = Add(h{i}, b2{i})
  [blocks_{i}_join] x{next} = Add(a{i}, o{i})"""

TEXT = (
    f"net (float[N,{WINDOWS},{TOKENS},{WIDTH}] x0) => (float[N,{WINDOWS},{TOKENS},{CLASSES}] y) {{"
    + "".join(BLOCK.format(i=i, next=i + 1) for i in range(BLOCKS))
    + f"\n  [head] y = MatMul(x{BLOCKS}, w) }}"
)


def outliers(seed: int = 0, *, planted: bool = True) -> Model:
    """The transformer. In the planted layer one channel of the input is FACTOR times as large as others.

    The function is the same: relu(300 x) = 300 relu(x), and the next weight is divided by as much.
    """
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    arrays: dict[str, np.ndarray] = {
        "w": matrix(WIDTH, CLASSES),
    }
    for i in range(BLOCKS):
        arrays |= {f"gamma{i}": np.ones(WIDTH, np.float32), f"beta{i}": np.zeros(WIDTH, np.float32)}
        arrays |= {f"w{name}{i}": matrix(WIDTH, WIDTH) for name in "qkvo"}
        arrays |= {f"w1{i}": matrix(WIDTH, HIDDEN), f"w2{i}": matrix(HIDDEN, WIDTH)}
        arrays |= {f"b1{i}": np.zeros(HIDDEN, np.float32), f"b2{i}": np.zeros(WIDTH, np.float32)}
        arrays[f"bo{i}"] = np.zeros(WIDTH, np.float32)
    if planted:
        arrays["w11"][:, 3] *= np.float32(FACTOR)
        arrays["w21"][3] /= np.float32(FACTOR)
    return net(TEXT, arrays)


def inputs(count: int = 12, seed: int = 5) -> dict[str, np.ndarray]:
    return {"x0": samples(count, WINDOWS, TOKENS, WIDTH, seed=seed)}


LOWER: Mapping[str, tuple[Callable[[ir.Model], LibraryModel], object]] = {
    "onnxruntime": (lower_to_onnxruntime, ORT),
    "openvino": (lower_to_openvino, OPENVINO),
}


def save_float(model: Model, folder: Path) -> Path:
    """The float model as a file."""
    path = folder / "float.onnx"
    save_model(model.graph, path)
    return path


def save_engine(path: Path, library: str, data: Mapping[str, np.ndarray]) -> Path:
    """An int8 engine of the float model at `path`, beside it."""
    model = load_model(path)
    if library == "cuda":
        lowered = lower_for_cuda(model, data)
    else:
        lower, target = LOWER[library]
        lowered = lower(write(quantized(model, target, data, method="minmax")))
    made = path.with_name(f"{library}.qrt")
    plan = Plan(
        model=lowered,
        options=ExecOptions(float_precision="fp16" if library == "cuda" else "fp32"),
        inputs=model.inputs,
        outputs=model.outputs,
        precision="int8",
        layers=(),
        fingerprint=model.fingerprint,
        device=describe_device(with_gpu=False),
    )
    save_plan(plan, made)
    return made


def lower_for_cuda(model: Model, data: Mapping[str, np.ndarray]) -> LibraryModel:
    """The program of a GPU that a CPU stands in for, every region by the reference."""
    wide = for_gpu(model)
    config = CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("triton", "cublaslt", "cudnn"))
    lowering = CudaLowering(wide, config, data, gpu=gpu_named("H200"), device="cpu")
    return lowering.lower(quantized(wide, CUDA, data, method="minmax"), "fp16")[0]
