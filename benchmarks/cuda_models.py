# SPDX-License-Identifier: Apache-2.0
"""Trained models on an NVIDIA GPU: `python -m benchmarks.cuda_models OUT.json [NAME ...]`.

Every trained model of the data folder is built in fp16 and int8, judged on real data against FP32 in ONNX
Runtime, and timed; every Q/DQ model is built as it is and held against ONNX Runtime. Regions that multiply
int8 codes are held against the reference code for code before a kernel may be taken; here their number is
told. Needs a GPU and the `bench` and `cuda` extras. A second run adds its models.
"""

__all__ = ["main"]

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from benchmarks.cuda.timing import commit, enqueued, environment, time_in_turns
from benchmarks.pages.cuda.models import cuda_models_page
from benchmarks.tasks.inputs import Feed
from benchmarks.tasks.real_data import DATA
from benchmarks.tasks.real_tasks import TASK_NAMES, load_task
from benchmarks.tasks.task import Task
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.errors import ModelError
from quantrt.ir.session import float_session
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.plan.program_json import program_from_model
from quantrt.prepare import Job, quantize_for_device
from quantrt.quantize.explicit.grids import grid_of
from quantrt.quantize.fit.fit import keeps_scales
from quantrt.quantize.scales.qparams import dequantize
from quantrt.runtime.machine import describe_machine
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec
from quantrt.tactics.time_candidates import time_candidates
from quantrt.tactics.timing import compare_paired

BATCH = 8
JUDGED_SAMPLES = 2000
"""At most so many samples of a task; a model's first views come first."""
TEXT_TASK = "all-MiniLM-L6-v2"

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Trained models on a GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out.exists() else {"float": {}, "quantized": {}}
    results["environment"] = environment()
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(_measure_named, name) for name in TASK_NAMES if name != TEXT_TASK
    }
    paths = {path.name.removesuffix(".onnx"): path for path in sorted((DATA / "qdq_models").glob("*.onnx"))}
    measures |= {name: partial(_measure_quantized, path) for name, path in paths.items()}
    for name, measure in measures.items():
        if not args.names or name in args.names:
            began = time.perf_counter()
            row = measure() | {"commit": commit(), "wall_s": time.perf_counter() - began}
            results["quantized" if name in paths else "float"][name] = row
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(cuda_models_page(results))
            print(json.dumps({name: row}), flush=True)


@contextmanager
def _candidates(path: Path, samples: list[Feed], timed: Feed) -> Iterator[dict[str, Candidate]]:
    """fp16 and int8 of a model, as `quantrt.build` would open them, whichever is faster."""
    model = for_gpu(load_model(path))
    config = BuildConfig(
        precisions=frozenset({"fp32", "fp16", "int8"}),
        device=DeviceConfig(device="cuda"),
        calibration=CalibrationConfig(),
    )
    job = Job(model, config, describe_machine("cuda"), lambda event: None)
    data = open_dataset(samples, model.inputs) if model.inputs else None  # a model may compute a constant
    fitted = quantize_for_device(job, data, None, None).fits["cuda", "int8"]
    given = fitted.model.graph if keeps_scales(model, config) else None
    with ExitStack() as stack:
        opener = stack.enter_context(closing(Opener(model, config, timed, float_graph=given)))
        opened = {}
        for precision, fit in (("fp16", None), ("int8", fitted)):
            found = opener.open(Spec("cuda", precision, "fp16"), fit)
            if isinstance(found, Rejected):
                raise RuntimeError(f"{path.name}: {precision}: {found.reason}")
            stack.callback(found.executor.close)
            opened[precision] = found
        yield opened


def _measure_named(name: str) -> dict[str, Any]:
    return _measure(load_task(name, DATA))


def _measure(task: Task) -> dict[str, Any]:
    """fp16 and int8 of a float model on the task's data."""
    feeds, count = _first_samples(task)
    run, names = _float_session(task.path)
    reference = _outputs(run, feeds, names)
    row: dict[str, Any] = {"samples": count, "score_name": "", "engines": {}}
    if task.score is not None:
        row |= {"score_name": task.score.name, "float_score": task.score.of(reference)}
    timed = _timed(task)
    with _candidates(task.path, task.calibration, timed) as candidates:
        for name, candidate in candidates.items():
            found = _outputs(candidate.executor.run, feeds, names)
            row["engines"][name] = _facts(candidate) | _judge(found, names, reference, task)
        row |= _times(candidates, timed)
    return row


def _measure_quantized(path: Path) -> dict[str, Any]:
    """A Q/DQ model against ONNX Runtime without its rewrites, on random codes of its inputs' own grids."""
    model = load_model(path)
    rng = np.random.default_rng(0)
    readers = {
        value.name: node
        for node in model.graph.graph
        if node.op_type == "QuantizeLinear" and (value := node.inputs[0]) is not None
    }
    feed: Feed = {spec.name: _on_grid(spec, readers[spec.name], rng) for spec in model.inputs}
    run, names = _runs_of(float_session(model.graph, optimize=False))
    want = run(feed)
    row: dict[str, Any] = {"engines": {}}
    with _candidates(path, [feed], feed) as candidates:
        for name, candidate in candidates.items():
            got = candidate.executor.run(feed)
            same = np.mean(want[names[0]].argmax(-1) == got[names[0]].argmax(-1))
            row["engines"][name] = _facts(candidate) | {
                "sqnr_db": {output: _sqnr_db(want[output], got[output]) for output in names},
                "agreement_ratio": float(same),
            }
        row |= _times(candidates, feed)
    return row


def _times(candidates: Mapping[str, Candidate], feed: Feed) -> dict[str, Any]:
    """Milliseconds of each engine; and which ships, by rounds and intervals as in a build."""
    paired = time_candidates(candidates, feed, BuildConfig(), lambda done, total: None)
    verdict = compare_paired(paired["int8"], paired["fp16"]).verdict
    ms = time_in_turns({name: enqueued(item.executor, feed) for name, item in candidates.items()})
    return {"ms": ms, "ships": "int8" if verdict == "faster" else "fp16"}


def _on_grid(spec: TensorSpec, quantize: ir.Node, rng: np.random.Generator) -> Array:
    """Any of the values that a QuantizeLinear can tell apart, equally often.

    Numbers of unit variance would be three codes of an image's 256, and rounding them most of what is there.
    """
    grid = grid_of(quantize)
    if isinstance(grid, str):
        raise ModelError(f"'{quantize.name}' has no grid of one scale", got=grid)
    shape = [n if isinstance(n, int) else BATCH for n in spec.shape or ()]
    codes = rng.integers(grid.lowest, grid.highest + 1, shape)
    return dequantize(codes, grid.qparams()).astype(spec.dtype)


def _facts(candidate: Candidate) -> dict[str, Any]:
    """How many regions run on the GPU, and how many of them multiply codes."""
    rows = program_from_model(candidate.model).notes["regions"].values()
    return {"regions": len(rows), "int8_products": sum(row["codes"] == "int8" for row in rows)}


def _judge(found: list[Array], names: list[str], reference: list[Array], task: Task) -> dict[str, Any]:
    pairs = zip(names, reference, found, strict=True)
    row: dict[str, Any] = {"sqnr_db": {name: _sqnr_db(want, got) for name, want, got in pairs}}
    if task.decisions is not None:
        row["agreement_ratio"] = float(np.mean(task.decisions(reference, found)))
    if task.score is not None:
        row["score"] = task.score.of(found)
    return row


def _first_samples(task: Task) -> tuple[list[Feed], int]:
    """Batches until there are enough samples, and their number."""
    feeds: list[Feed] = []
    count = 0
    for feed in task.validation:
        feeds.append(dict(feed))
        count += len(next(iter(feed.values())))
        if count >= JUDGED_SAMPLES and task.score is None:
            break
    return feeds, count


def _outputs(run: Run, feeds: list[Feed], names: list[str]) -> list[Array]:
    parts = [run(feed) for feed in feeds]
    return [np.concatenate([np.asarray(part[name]) for part in parts]) for name in names]


def _float_session(path: Path) -> tuple[Run, list[str]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return _runs_of(session)


def _runs_of(session: Any) -> tuple[Run, list[str]]:
    names = [value.name for value in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True)), names


def _largest_batch(task: Task) -> int:
    """Of the samples that are timed: one where the model's other inputs have no batch."""
    return BATCH if len(task.calibration[0]) == 1 else 1


def _timed(task: Task) -> Feed:
    batch = _largest_batch(task)
    if batch == 1:
        return task.calibration[0]
    return {
        name: np.concatenate([feed[name] for feed in task.calibration[:batch]])
        for name in task.calibration[0]
    }


def _sqnr_db(want: Array, got: Array) -> float:
    signal, noise = (np.square(x.astype(np.float64)).sum() for x in (want, want.astype(np.float64) - got))
    return float(10 * np.log10(signal / max(noise, 1e-30)))


if __name__ == "__main__":
    main()
