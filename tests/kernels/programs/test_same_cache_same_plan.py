# SPDX-License-Identifier: Apache-2.0
"""With the timing cache of a build the next gives the same plan, byte for byte; and the cache decides."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.packed import pack
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_from_model
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, samples

INPUTS = {"x": samples(16, 64)}
TWO_WORKLOADS = """net (float[N,64] x) => (float[N,32] y) {
  h = MatMul(x, w) r = Relu(h) y = Softmax<axis=-1>(r) }"""


@pytest.fixture
def model() -> Model:
    return net(TWO_WORKLOADS, {"w": samples(64, 32)})


def lowered(model: Model, cache: Path) -> LibraryModel:
    """The plan of an fp16 engine; our kernels run in Triton's interpreter."""
    config = CudaConfig(timing_cache=str(cache), builder_optimization_level=1)
    with closing(CudaLowering(model, config, INPUTS, gpu=gpu_named("H200"), device="cpu")) as lowering:
        return lowering.lower(None, "fp16")[0]


def contents(made: LibraryModel) -> tuple[bytes, dict[str, bytes]]:
    """What is written to an engine file."""
    packed = pack(made)
    return packed.graph, {name: array.tobytes() for name, array in packed.weights.items()}


def test_the_same_cache_gives_the_same_plan(model: Model, tmp_path: Path):
    cache = tmp_path / "timings.json"
    first = lowered(model, cache)
    timed = cache.read_bytes()
    again, once_more = lowered(model, cache), lowered(model, cache)
    assert contents(again) == contents(once_more)
    assert cache.read_bytes() == timed
    was, now = (program_from_model(made) for made in (first, again))
    assert (was.steps, was.kernels, was.outputs) == (now.steps, now.kernels, now.outputs)
    origins = {row["origin"] for row in now.notes["regions"].values()}
    assert "timed" not in origins and "cached" in origins


def test_another_cache_gives_another_plan(model: Model, tmp_path: Path):
    """So that equal plans are the cache's doing: the slowest tactic is made the fastest in it."""
    cache = tmp_path / "timings.json"
    first = program_from_model(lowered(model, cache))
    table = json.loads(cache.read_text())
    for entry in table["devices"][0]["workloads"].values():
        times = [row for row in entry["tactics"].values() if isinstance(row, dict)]
        if len(times) > 1:
            slowest = max(times, key=lambda row: row["median_us"])
            slowest.update(dict.fromkeys(("median_us", "p20_us", "p80_us"), 1e-3))
    cache.write_text(json.dumps(table))
    other = program_from_model(lowered(model, cache))
    names = [
        {region: row["tactic"] for region, row in made.notes["regions"].items()} for made in (first, other)
    ]
    assert names[0] != names[1]
    assert first.steps != other.steps
