# SPDX-License-Identifier: Apache-2.0
"""What a budget is of, by what a task calls a decision, and samples that it can be measured on."""

__all__ = ["metric_of", "with_decisions"]

from typing import Any

from benchmarks.peers.peers import open_ort
from benchmarks.tasks.task import Task, same_class

FACES = "benchmarks.picture_tasks:same_faces"
"""A detector's decisions: the anchors that it calls faces."""


def metric_of(task: Task) -> str:
    """Of a budget of QuantRT: decisions as `task` tells them from FP32's, or the power of noise."""
    if task.decisions is same_class:
        return "top1"
    return "sqnr" if task.decisions is None else FACES


def with_decisions(task: Task) -> list[dict[str, Any]]:
    """The calibration samples, each with the class that FP32 finds, or the scores it decides by."""
    floats = open_ort(task.path)
    found = [next(iter(floats.run(feed).values())) for feed in task.calibration]
    labels = [scores.argmax(-1) for scores in found] if metric_of(task) == "top1" else found
    return [{**feed, "labels": label} for feed, label in zip(task.calibration, labels, strict=True)]
