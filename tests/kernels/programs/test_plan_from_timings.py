# SPDX-License-Identifier: Apache-2.0
"""Planning for a GPU that is not here, from a timing cache that was filled where it is."""

import json
from contextlib import closing

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.plan.program_json import program_from_model
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, samples

H200 = gpu_named("H200")


def test_a_gpu_that_is_not_here_is_planned_from_timings_that_were_taken_there(tmp_path, caplog):
    model = net(
        "net (float[N,64] x) => (float[N,32] y) { h = MatMul(x, w) y = Relu(h) }",
        {"w": samples(64, 32)},
    )
    path = tmp_path / "h200.json"
    config = CudaConfig(timing_cache=str(path), exclude_tactic_sources=("triton",))
    inputs = {"x": samples(16, 64)}
    CudaLowering(model, config, inputs, gpu=H200, device="cpu").lower(None, "fp16")
    taken = json.loads(path.read_text())
    taken["devices"][0]["environment"] |= {
        "gpu": "NVIDIA H200",
        "driver": "570.1",
        "cuda": "12.8",
        "torch": "2.11.0",
    }
    path.write_text(json.dumps(taken))
    with closing(CudaLowering(model, config, inputs, gpu=H200, device=None)) as lowering:
        made, _ = lowering.lower(None, "fp16")
    rows = program_from_model(made).notes["regions"].values()
    assert {row["origin"] for row in rows if row["formula"] == "Gemm"} == {"cached"}
    assert json.loads(path.read_text()) == taken, "nothing was timed, nothing is written"
    assert not caplog.records
    CudaLowering(model, config, inputs, gpu=gpu_named("L4"), device=None)
    assert "ignored: they were taken with capability 9.0, not 8.9" in caplog.text
    caplog.clear()
    CudaLowering(model, config, inputs, gpu=gpu_named("H100"), device=None)
    assert "ignored: they were taken with gpu H200, not H100 SXM" in caplog.text
