# SPDX-License-Identifier: Apache-2.0
"""Float, fake-quantized and compiled model: the planted layer is named, and every figure is what it says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="programs for a GPU are lowered with torch")

from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.config import CompareConfig
from quantrt.errors import ModelError, UsageError
from quantrt.model.file.save import save_model
from quantrt.plan.lower import spell_for_onnxruntime
from quantrt.plan.program_json import program_from_model, program_to_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.quantize.qdq.switches import FLAGS, switch_layers
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import OPENVINO, ORT, TENSORRT
from quantrt.quantize.targets.cuda import CUDA
from quantrt.report.compare.compare import compare
from quantrt.report.compare.show import show_comparison
from quantrt.report.layer_errors.extents import find_extents
from quantrt.report.layer_errors.isolate import with_twins
from quantrt.report.layer_errors.sessions import Part
from quantrt.report.layer_errors.three_way import compare_three_ways
from quantrt.report.subject import Subject, open_subject
from quantrt.runtime import engine as engine_module
from tests.gpu_stand_in import programs_on_cpu
from tests.nets import RESNET, RESNET_SHAPES, net, quantized, resnet, samples, weights
from tests.unit.report.layer_errors.quantized_pairs import (
    PLANTED,
    inputs,
    outliers,
    save_engine,
    save_float,
)

CONFIG = CompareConfig(min_sqnr_db=30.0)


def uncounted(title: str, unit: str):
    return lambda done, total: None


@contextmanager
def opened(a: Path, b: Path, data: Mapping[str, np.ndarray]):
    with open_subject(a) as reference, open_subject(b) as subject:
        yield reference, subject, open_dataset(data, reference.inputs)


def three_ways(
    a: Path, b: Path, data: Mapping[str, np.ndarray], config: CompareConfig = CONFIG
) -> dict[str, Any]:
    with opened(a, b, data) as (reference, subject, dataset):
        return compare_three_ways(reference, subject, dataset, config, uncounted)


@pytest.fixture
def cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines for a GPU are loaded and run on the CPU."""
    monkeypatch.setattr(engine_module, "check_library", lambda library, **options: None)
    monkeypatch.setattr(engine_module, "describe_machine", lambda library: {})
    with programs_on_cpu():
        yield


@pytest.mark.parametrize("library", ["onnxruntime", "openvino", "cuda"])
def test_the_layer_with_planted_outliers_is_named(library: str, tmp_path: Path, cpu_for_gpu: None):
    path = save_float(outliers(), tmp_path)
    data = three_ways(path, save_engine(path, library, inputs()), inputs(seed=6))
    damage = data["damage"]
    assert damage["worst"][0]["layers"] == [PLANTED]
    assert damage["worst"][0]["share_ratio"] > 0.8
    assert damage["total_db"] < 20 < 30 <= damage["in_floats"][-1]["sqnr_db"]
    assert damage["in_floats"][0]["layers"] == [PLANTED]
    assert sum(row["share_ratio"] for row in damage["worst"]) == pytest.approx(1)
    by_name = {row["name"]: row for row in data["layers"]}
    others = [row["alone"]["sqnr_db"] for name, row in by_name.items() if name != PLANTED]
    assert by_name[PLANTED]["alone"]["sqnr_db"] < min(others) - 10, (
        "alone, from float inputs, it is the worst"
    )
    assert by_name[PLANTED]["quantized"]["sqnr_db"] < 20
    assert data["engine"]["library"] == library
    assert data["engine"]["leaves_path_at"] is None
    assert data["engine"]["compared"] >= 10
    assert data["not_finite"] == []
    first = data["layers"][0]
    assert first["alone"] == first["quantized"], "nothing is quantized before the first layer"


def test_without_outliers_no_layer_stands_out(tmp_path: Path):
    path = save_float(outliers(planted=False), tmp_path)
    damage = three_ways(path, save_engine(path, "onnxruntime", inputs()), inputs(seed=6))["damage"]
    assert damage["total_db"] > 20
    assert damage["worst"][0]["share_ratio"] < 0.5


def test_an_engine_that_computes_otherwise_is_found_where_it_does(tmp_path: Path):
    path = save_float(outliers(planted=False), tmp_path)
    with opened(path, save_engine(path, "openvino", inputs()), inputs(seed=6)) as (
        reference,
        subject,
        dataset,
    ):
        wrong = Wrong(subject, {"o1", "x2", "o2", "x3", "y"})
        data = compare_three_ways(reference, wrong, dataset, CONFIG, uncounted)
        show_comparison(compare(reference, wrong, dataset, CONFIG, layers=True))
    assert data["engine"]["leaves_path_at"] == PLANTED
    assert [row["name"] for row in data["layers"] if row["leaves_path"]][0] == PLANTED


class Wrong(Subject):
    """An engine with a bug: some of its tensors are a fifth too large, all else is right."""

    def __init__(self, right: Subject, names: set[str]) -> None:
        self.__dict__.update(right.__dict__)
        self._right = right
        self._names = names

    def tap(self, names: Sequence[str]) -> Any:
        executor = self._right.tap(names)
        run = executor.run

        def wrong_run(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {name: x * 1.2 if name in self._names else x for name, x in run(given).items()}

        executor.run = wrong_run
        return executor


def test_the_table_of_the_planted_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = save_float(outliers(), tmp_path)
    with opened(path, save_engine(path, "openvino", inputs()), inputs(seed=6)) as (
        reference,
        subject,
        dataset,
    ):
        data = compare(reference, subject, dataset, CompareConfig(), layers=True)
    show_comparison(data)
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    rows = [line for line in lines if line.startswith("blocks")]
    assert rows[0].startswith(PLANTED)
    assert f"next: quantrt build ... --exclude '{PLANTED}'" in text
    assert lines[-1].startswith("FAILED 1 of 1 outputs")
    show_comparison(data, every=True)
    every = [line for line in capsys.readouterr().out.splitlines() if line.startswith("blocks")]
    assert every[0].startswith("blocks_0_q_MatMul")


def test_few_tensors_at_a_time_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save_float(outliers(), tmp_path)
    engine = save_engine(path, "onnxruntime", inputs())
    together = three_ways(path, engine, inputs(seed=6))
    monkeypatch.setattr("quantrt.report.layer_errors.measure.GROUP_BYTES", 1)
    apart = three_ways(path, engine, inputs(seed=6))
    for a, b in zip(together["layers"], apart["layers"], strict=True):
        assert (a["alone"], a["quantized"]) == (b["alone"], b["quantized"])


def test_of_many_layers_the_worst_is_found_by_splitting_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = save_float(outliers(), tmp_path)
    engine = save_engine(path, "onnxruntime", inputs())
    monkeypatch.setattr("quantrt.report.layer_errors.damage.RUNS", 6)
    data = three_ways(path, engine, inputs(seed=6))
    worst = data["damage"]["worst"]
    assert worst[0]["layers"] == [PLANTED]
    assert sorted(name for row in worst for name in row["layers"]) == sorted(
        row["name"] for row in data["layers"]
    )
    assert any(len(row["layers"]) > 1 for row in worst)


NOT_FINITE = """net (float[N,4] x) => (float[N,4] y) {
  [product] h = MatMul(x, w)
  [inverse] r = Reciprocal(h)
  [bound] y = Min(r, most)
}"""


def test_what_only_quantization_makes_infinite_is_found(tmp_path: Path):
    """A value that is small, but not zero, becomes zero: its reciprocal is infinite, the output is not."""
    arrays = {"w": np.eye(4, dtype=np.float32), "most": np.asarray(100, np.float32)}
    model = net(NOT_FINITE, arrays)
    rounded = net(
        NOT_FINITE.replace("Reciprocal(h)", "Reciprocal(d)").replace(
            "[inverse]", "c = QuantizeLinear(h, s, z)\n d = DequantizeLinear(c, s, z)\n [inverse]"
        ),
        {**arrays, "s": np.asarray(0.1, np.float32), "z": np.asarray(0, np.int8)},
    )
    paths = save_float(model, tmp_path), tmp_path / "rounded.onnx"
    save_model(rounded.graph, paths[1])
    x = np.full((3, 4), 2.0, np.float32)
    x[1, 2] = 0.01
    data = three_ways(*paths, {"x": x})
    assert data["not_finite"] == [
        {
            "where": "fake-quantized",
            "tensor": "r",
            "node": "inverse",
            "op_type": "Reciprocal",
            "nan": 0,
            "infinite": 1,
            "elements": 12,
        },
        {
            "where": "compiled",
            "tensor": "r",
            "node": "inverse",
            "op_type": "Reciprocal",
            "nan": 0,
            "infinite": 1,
            "elements": 12,
        },
    ]


def test_nan_of_the_float_model_is_told_apart(tmp_path: Path):
    text = "net (float[N,8] x) => (float[N,4] y) { [log] l = Log(x)\n [product] y = MatMul(l, w) }"
    model = net(text, weights({"w": (8, 4)}))
    good = np.abs(samples(8, 8)) + 0.1
    path = save_float(model, tmp_path)
    engine = save_engine(path, "onnxruntime", {"x": good})
    bad = good.copy()
    bad[3, 1], bad[5, 0] = -1, 0
    data = three_ways(path, engine, {"x": bad})
    rows = {row["where"]: row for row in data["not_finite"]}
    for where in ("float", "fake-quantized"):
        row = rows[where]
        assert (row["tensor"], row["node"], row["nan"], row["infinite"]) == ("l", "log", 1, 1)


@pytest.mark.parametrize("target", [ORT, OPENVINO, TENSORRT, CUDA], ids=lambda target: target.name)
def test_models_with_quantize_linear_of_every_target(target, tmp_path: Path):
    data = {"x": samples(8, 3, 16, 16)}
    path = save_float(resnet(), tmp_path)
    save_model(write(quantized(resnet(), target, data)), tmp_path / "q.onnx")
    found = three_ways(path, tmp_path / "q.onnx", {"x": samples(8, 3, 16, 16, seed=4)})
    assert {row["op_type"] for row in found["layers"]} >= {"Conv", "Add", "Gemm"}
    assert found["engine"]["leaves_path_at"] is None
    assert all(row["compiled"] is not None for row in found["layers"])
    assert found["layers"][0]["parameter"] == "b0", "what a node that is only numbered is known by"


def is_same(graph: ir.Model) -> ir.Model:
    return graph


@pytest.mark.parametrize("spelled", [is_same, spell_for_onnxruntime])
def test_a_table_in_codes_is_a_layer(spelled: Callable[[ir.Model], ir.Model], tmp_path: Path, rng):
    """Its rows are dequantized behind a Gather or before it; in floats it is balanced too."""
    text = "net (int64[N,4] i) => (float[N,4,8] y) { [pick] e = Gather(t, i) [product] y = MatMul(e, w) }"
    arrays = {"t": rng.standard_normal((2048, 32)), "w": rng.standard_normal((32, 8))}
    arrays["t"][:, 3] *= 20
    model = net(text, {name: array.astype(np.float32) for name, array in arrays.items()})
    data = {"i": rng.integers(0, 2048, (8, 4))}
    save_model(spelled(write(quantized(model, ORT, data))), tmp_path / "q.onnx")
    found = three_ways(save_float(model, tmp_path), tmp_path / "q.onnx", data)
    rows = {row["op_type"]: row for row in found["layers"]}
    assert rows.keys() == {"Gather", "MatMul"}
    assert 38 < rows["Gather"]["alone"]["sqnr_db"] < 60


def test_an_engine_of_another_model_is_refused(tmp_path: Path):
    path = save_float(outliers(), tmp_path)
    engine = save_engine(path, "onnxruntime", inputs())
    other = save_float(outliers(seed=9), tmp_path)
    with pytest.raises(UsageError, match="not built from") as caught:
        three_ways(other, engine, inputs())
    assert caught.value.got == "weights of another model"


def test_a_model_that_was_changed_otherwise_is_refused(tmp_path: Path):
    """A node more than quantization put there: switching layers off does not give the float model."""
    data = {"x": samples(4, 3, 16, 16)}
    path = save_float(resnet(), tmp_path)
    text = RESNET.replace(
        "y = Gemm<transB=1>(flat, w4, b4)", "g = Gemm<transB=1>(flat, w4, b4)\n y = Tanh(g)"
    )
    other = net(text, weights(RESNET_SHAPES))
    save_model(write(quantized(other, ORT, data)), tmp_path / "q.onnx")
    with pytest.raises(ModelError, match="differ by more than quantization") as caught:
        three_ways(path, tmp_path / "q.onnx", data)
    assert "'y' of the float model" in (caught.value.got or "")


def test_the_error_alone_is_that_of_the_model_with_one_layer_quantized(tmp_path: Path):
    """One pass with twins beside the float layers, against as many passes as there are layers."""
    model = outliers()
    fake = write(quantized(model, OPENVINO, inputs(), method="minmax"))
    switched = switch_layers(fake, model.graph)
    extents = find_extents(fake, switched.layers, "openvino", ())
    graph, twins = with_twins(switched, extents)
    x = inputs(seed=6)
    outputs = [extent.output for extent in extents]
    alone = Part(graph, [twins[extent.layer.name] for extent in extents]).run({**x, FLAGS: switched.flags()})
    one_by_one = Part(switched.graph, outputs)
    assert len(extents) > 15
    for extent in extents:
        wanted = one_by_one.run({**x, FLAGS: switched.flags(extent.layer.index)})[extent.output]
        np.testing.assert_array_equal(alone[twins[extent.layer.name]], wanted)


def test_a_program_without_its_record_says_what_to_do(tmp_path: Path, cpu_for_gpu: None):
    path = save_float(outliers(), tmp_path)
    engine = save_engine(path, "cuda", inputs())
    plan = load_plan(engine)
    program = program_from_model(plan.model)
    notes = {name: value for name, value in program.notes.items() if name != "quantization"}
    save_plan(replace(plan, model=program_to_model(replace(program, notes=notes))), engine)
    with pytest.raises(ModelError, match="does not say how it was quantized") as caught:
        three_ways(path, engine, inputs())
    assert "again" in (caught.value.hint or "")


def test_a_float_subject_is_compared_tensor_by_tensor(tmp_path: Path):
    path = save_float(outliers(), tmp_path)
    with opened(path, path, inputs()) as (reference, subject, dataset):
        data = compare(reference, subject, dataset, CompareConfig(), layers=True)
    assert data["three_way"] is None
    assert {"a1", "o1"} <= {row["name"] for row in data["layers"]}
    assert isinstance(dataset, Dataset)
