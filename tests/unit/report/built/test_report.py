# SPDX-License-Identifier: Apache-2.0
"""Facts with every awkward value become a report that is plain JSON."""

import json
import math
from dataclasses import replace

import pytest

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import Choice, Verdict
from quantrt.config import BuildConfig, ReportConfig
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.plan.program_json import program_to_model
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.report.built.facts import BuildFacts
from quantrt.report.built.layer_rows import layer_rows
from quantrt.report.built.report import build_report
from quantrt.report.ranges.bins import BINS, read_tensors
from quantrt.tactics.candidates import Candidate, Rejected, Spec
from quantrt.tactics.timing import Latency, Paired
from tests.nets import observe, quantized, resnet, samples
from tests.programs import pooled_program

IMAGES = {"x": samples(4, 3, 16, 16)}


@pytest.fixture(scope="module")
def facts() -> BuildFacts:
    model = resnet()
    fitted = Fitted(quantized(model, OPENVINO, IMAGES), "auto", {"auto": math.nan, "entropy": math.inf})
    library_model = LibraryModel("openvino", b"x" * 10, {})
    specs = [Spec("openvino", "fp32"), Spec("openvino", "int8", "bf16"), Spec("onnxruntime", "fp32")]
    candidates = {
        spec.name: Candidate(
            spec, library_model, ExecOptions(), None, fitted if spec.precision == "int8" else None
        )
        for spec in specs
    }
    accuracy = Accuracy("sqnr", math.inf, math.nan, math.inf, -math.inf, math.nan, 3, 3)
    choice = Choice(
        "openvino int8+bf16",
        "openvino fp32",
        "because",
        {
            "openvino fp32": Verdict("baseline", "the fastest FP32 candidate"),
            "openvino int8+bf16": Verdict("shipped", "fastest", Paired(0.5, 0.0, math.inf, 3), accuracy),
        },
    )
    return BuildFacts(
        model=model,
        config=BuildConfig(),
        device={"cpu": "A"},
        stats=observe(model, (OPENVINO,), IMAGES),
        checked_on="validation data",
        candidates=candidates,
        rejected=(Rejected(Spec("onnxruntime", "int8"), "no kernel"),),
        latencies={
            "openvino fp32": Latency((2.0, 2.2, 1.8)),
            "openvino int8+bf16": Latency((1.0, 1.1, 0.9)),
        },
        choice=choice,
        notes=("a note about the model",),
    )


def test_the_report_is_plain_json(facts: BuildFacts):
    report = build_report(facts)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_an_output_that_others_hide_is_noted(facts: BuildFacts):
    verdict = facts.choice.verdicts["openvino int8+bf16"]
    noisy = replace(verdict, accuracy=replace(verdict.accuracy, noisy=(("boxes", 3.25),)))
    choice = replace(facts.choice, verdicts={**facts.choice.verdicts, "openvino int8+bf16": noisy})
    report = build_report(replace(facts, choice=choice))
    (note,) = (note for note in report["notes"] if "'boxes'" in note)
    assert "alone has an SQNR of 3.2 dB" in note
    assert report["candidates"][0]["accuracy"]["noisy"] == {"boxes": 3.25}


def test_infinities_and_nan_become_null(facts: BuildFacts):
    row = build_report(facts)["candidates"][0]
    assert row["name"] == "openvino int8+bf16"
    assert row["output_noise_ratios"] == {"auto": None, "entropy": None}
    assert row["against_float"] == {"ratio": 0.5, "lo": 0.0, "hi": None, "rounds": 3}
    assert [row["accuracy"][key] for key in ("float_score", "score", "drop_ratio", "sqnr_db")] == [None] * 4
    assert row["accuracy"]["samples"] == 3


def test_candidates_come_by_time_then_the_slower_ones_then_the_rejected(facts: BuildFacts):
    rows = build_report(facts)["candidates"]
    assert [(row["name"], row["status"]) for row in rows] == [
        ("openvino int8+bf16", "shipped"),
        ("openvino fp32", "baseline"),
        ("onnxruntime fp32", "passed over"),
        ("onnxruntime int8", "rejected"),
    ]
    assert rows[2]["latency"] is None and rows[2]["reason"] == "slower in the first heat"
    assert rows[3]["reason"] == "no kernel"
    assert rows[1]["latency"]["median_ms"] == 2.0 and rows[1]["latency"]["runs"] == 3


def test_notes_of_the_build_and_of_the_shipped_model(facts: BuildFacts):
    report = build_report(facts)
    assert report["notes"][0] == "a note about the model"
    assert report["verdict"] == {
        "shipped": "openvino int8+bf16",
        "baseline": "openvino fp32",
        "reason": "because",
        "checked_on": "validation data",
    }


def test_latencies_that_vary_too_much_are_told(facts: BuildFacts):
    unsteady = {**facts.latencies, "openvino fp32": Latency((2.0, 9.0, 1.0))}
    notes = build_report(replace(facts, latencies=unsteady))["notes"]
    assert notes[0].startswith("openvino fp32: latencies vary by ") and "is the machine busy?" in notes[0]
    assert notes[1] == "a note about the model"


def test_layers_that_onnx_runtime_is_kept_from_rounding_are_counted(facts: BuildFacts):
    name = facts.choice.winner
    for kept, says in ((("a",), "'a' stays float"), (("a", "b"), "2 layers, 'a' the first, stay float")):
        candidates = {**facts.candidates, name: replace(facts.candidates[name], kept_float=kept)}
        assert says in build_report(replace(facts, candidates=candidates))["notes"][-1]


def test_histograms_are_kept_as_asked_for(facts: BuildFacts):
    def bins(histograms: str) -> set[int]:
        config = replace(facts.config, report=ReportConfig(histograms=histograms))
        rows = read_tensors(build_report(replace(facts, config=config))["tensors"])
        assert {row["name"] for row in rows} == set(fitted.model.activations)
        return {len(row["bins"]) for row in rows}

    fitted = facts.candidates["openvino int8+bf16"].fitted
    assert bins("always") == {BINS}
    assert bins("never") == {0}
    assert bins("auto") == {0}  # the model takes 10 bytes


def test_latencies_come_with_their_histogram(facts: BuildFacts):
    latency = build_report(facts)["candidates"][0]["latency"]
    assert sum(latency["histogram"]["counts"]) + latency["histogram"]["above"] == latency["runs"] == 3
    assert latency["max_ms"] == 1.1 and latency["p99_ms"] <= 1.1


def test_layers_outside_int8_are_in_the_float_precision_of_the_engine(facts: BuildFacts):
    rows = {row.name: row for row in layer_rows(facts)}
    assert set(rows) == {node.name for node in facts.model.graph.graph}
    assert rows["Conv_0"].precision == "int8"
    assert rows["Flatten_11"].precision == "bf16"
    assert rows["Conv_0"].sources == ("Conv_0",)


def test_layers_of_an_engine_for_a_gpu_say_what_computes_them(facts: BuildFacts):
    node = next(iter(facts.model.graph.graph))
    notes = {
        "regions": {"r": {"nodes": [node.name, "b"], "tactic": "triton: conv2d 64x32", "median_us": 7.25}}
    }
    candidate = Candidate(
        Spec("cuda", "fp16", "fp16"), program_to_model(pooled_program(notes=notes)), ExecOptions(), None, None
    )
    choice = replace(facts.choice, winner="cuda fp16")
    memory = {"cuda fp16": {"pool_bytes": 5}}
    on_gpu = replace(
        facts, candidates={**facts.candidates, "cuda fp16": candidate}, choice=choice, memory=memory
    )
    first, second, *_ = layer_rows(on_gpu)
    assert first.precision == second.precision == "fp16"
    assert first.reason == "because; triton: conv2d 64x32, 7.2 us (region 'r' of 2 nodes)"
    assert second.reason == "because"
    rows = {row["name"]: row for row in build_report(on_gpu)["candidates"]}
    assert rows["cuda fp16"]["memory"] == {"pool_bytes": 5}
