# SPDX-License-Identifier: Apache-2.0
"""What `quantrt quantize` makes within a budget: the target of accuracy control, on the same samples."""

__all__ = ["open_within_budget"]

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.contenders import CONTROLLED_DROP_RATIO, Opened
from benchmarks.peers.on_codes import placed_products
from benchmarks.peers.peers import open_openvino, open_ort
from benchmarks.tasks.decisions import metric_of, with_decisions
from benchmarks.tasks.task import Task
from quantrt.config import Budget, BuildConfig
from quantrt.qdq_model.make import quantize_model
from quantrt.recipe import load_recipe

MEGABYTE = 1e6


@contextmanager
def open_within_budget(task: Task, target: str, recipe: str | None) -> Iterator[Opened]:
    """The file of one target, open, in the library that it is for.

    Args:
        target: "ort" and "tensorrt", which run in ONNX Runtime, or "openvino".
        recipe: None for the defaults.
    """
    options = None if recipe is None else load_recipe(recipe)
    config = (
        BuildConfig()
        if options is None
        else BuildConfig(calibration=options.calibration_config(), quantize=options.quantize_config())
    )
    metric, samples = metric_of(task), task.calibration
    budget = Budget(metric=metric, max_drop_ratio=CONTROLLED_DROP_RATIO)
    judged_on = samples if metric == "sqnr" else with_decisions(task)
    began = time.process_time()
    made = quantize_model(
        task.path, target=target, config=config, budget=budget, calibration=samples, validation=judged_on
    )
    seconds = time.process_time() - began
    assert made.report is not None  # a budget was asked for
    facts = placed_products(made.quantized) | {
        "cpu_seconds": seconds,
        "drop_on_calibration": made.report["result"]["drop_ratio"],
        "all_int8_drop": made.report["all_int8"]["drop_ratio"],
        "rounds": len(made.report["rounds"]),
        "float_ratio": 1.0 - made.report["result"]["int8_product_ratio"],
    }
    with TemporaryDirectory() as folder:
        path = Path(folder, "q.onnx")
        made.save(path)
        facts["file_mb"] = path.stat().st_size / MEGABYTE
        runner = open_openvino(path, precision="f32") if target == "openvino" else open_ort(path)
        yield Opened(lambda inputs: runner.run(dict(inputs)), facts)
