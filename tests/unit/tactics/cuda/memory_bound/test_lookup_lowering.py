# SPDX-License-Identifier: Apache-2.0
"""Models with embeddings lowered on a CPU: what is stored of a table, and what its rows are."""

import numpy as np
import pytest

from quantrt.calibrate.stats import Stats
from quantrt.config import TACTIC_SOURCES, CalibrationConfig, CudaConfig, QuantizeConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.record import from_record, record_of
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, run_ort

REFERENCE_ONLY = CudaConfig(
    exclude_tactic_sources=tuple(source for source in TACTIC_SOURCES if source != "torch"),
    builder_optimization_level=0,
)
ROWS, COLUMNS = 8192, 128
TEXT = """net (int64[B,S] ids, int64[B,S] types) => (float[B,S,128] y) {
  word = Gather(words, ids)
  type = Gather(kinds, types)
  s = Add(word, type)
  y = LayerNormalization<axis=-1>(s, g, b)
}"""


def encoder(rng: np.random.Generator) -> Model:
    arrays = {"words": (ROWS, COLUMNS), "kinds": (2, COLUMNS), "g": (COLUMNS,), "b": (COLUMNS,)}
    return net(TEXT, {name: rng.standard_normal(size).astype(np.float32) for name, size in arrays.items()})


def numbers(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"ids": rng.integers(-ROWS, ROWS, (3, 9)), "types": rng.integers(0, 2, (3, 9))}


def in_codes(model: Model, *, per_channel: bool = True) -> QuantizedModel:
    stats = Stats({}, 0, "", model.fingerprint)
    return quantize(model, stats, CUDA, QuantizeConfig(per_channel=per_channel), CalibrationConfig())


def lowered(model: Model, codes: QuantizedModel | None, precision: str) -> Program:
    lowering = CudaLowering(
        model, REFERENCE_ONLY, numbers(np.random.default_rng(5)), gpu=gpu_named("h200"), device="cpu"
    )
    return program_from_model(lowering.lower(codes, precision)[0])


def run(program: Program, feeds: dict[str, np.ndarray]) -> np.ndarray:
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    try:
        return executor.run(feeds)["y"]
    finally:
        executor.close()


def tables(program: Program) -> set[str]:
    """Element types of the stored tables."""
    return {str(array.dtype) for array in program.weights.values() if array.shape == (ROWS, COLUMNS)}


@pytest.mark.parametrize(
    ("precision", "stored", "floor_db"), [("fp32", "float32", 110), ("fp16", "float16", 50)]
)
def test_a_table_is_stored_as_floats_are(
    precision: str, stored: str, floor_db: float, rng: np.random.Generator
):
    model, feeds = encoder(rng), numbers(rng)
    program = lowered(model, None, precision)
    assert tables(program) == {stored}
    assert len(program.steps) == 1
    assert sqnr_db(run_ort(model.graph, feeds)[0], run(program, feeds)) > floor_db


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_table_in_codes_gives_what_the_standard_model_gives(per_channel: bool, rng: np.random.Generator):
    model, feeds = encoder(rng), numbers(rng)
    codes = in_codes(model, per_channel=per_channel)
    program = lowered(model, codes, "fp32")
    assert tables(program) == {"int8"}
    assert len(program.steps) == 1
    (want,) = run_ort(write(codes), feeds)
    assert sqnr_db(want, run(program, feeds)) > 110
    (exact,) = run_ort(model.graph, feeds)
    assert sqnr_db(exact, want) > (40 if per_channel else 30)


def test_a_row_that_is_not_there_is_nan(rng: np.random.Generator):
    model = encoder(rng)
    feeds = {"ids": np.array([[0, ROWS]]), "types": np.array([[0, 0]])}
    found = run(lowered(model, in_codes(model), "fp16"), feeds)
    assert np.isnan(found).all(axis=-1).tolist() == [[False, True]]


def test_the_record_of_a_quantization_gives_the_same_table(rng: np.random.Generator):
    model, feeds = encoder(rng), numbers(rng)
    codes = in_codes(model)
    again = from_record(model, record_of(codes), CUDA)
    (want,), (got,) = (run_ort(write(one), feeds) for one in (codes, again))
    assert np.array_equal(want, got)
