# SPDX-License-Identifier: Apache-2.0
"""A prepared module trains in a plain loop, on several processes, and compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import quantrt
from benchmarks.qat_training import Training
from benchmarks.qat_training import train as train_in_time
from quantrt.errors import UsageError
from quantrt.torch.qat import convert, distillation_loss
from tests.unit.torch.qat import nets

ROOT = Path(__file__).parents[4]

TWO_PROCESSES = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from quantrt.torch.qat import convert, distillation_loss, prepare
from tests.unit.torch.qat import nets

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = nets.resnet()
prepared = prepare(net, nets.images(2, 2), [nets.images(8, 3)])
model = DistributedDataParallel(prepared)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
model.eval()
for step in range(2):
    images = nets.images(8, 10 + step)[4 * rank : 4 * rank + 4]
    with torch.no_grad():
        wanted = net(images)
    loss = distillation_loss(model(images), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
state = {name: value.double().sum().item() for name, value in model.module.state_dict().items()}
made = convert(model.module)
codes = {
    name: int(value.const_value.numpy().astype(int).sum())
    for name, value in made.graph.initializers.items()
    if name.endswith("_quantized")
}
with open(os.path.join(sys.argv[1], f"{rank}.json"), "w") as file:
    json.dump({"state": state, "codes": codes}, file)
dist.destroy_process_group()
"""


def train(prepared, net, *, steps, forward=None, batch=8):
    """Losses of a plain loop; dropout off, so that two loops can be compared."""
    optimizer = torch.optim.Adam(prepared.parameters(), lr=1e-3)
    forward = prepared if forward is None else forward
    losses = []
    for step in range(steps):
        images = nets.images(batch, 10 + step)
        with torch.no_grad():
            wanted = net(images)
        loss = distillation_loss(forward(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_brings_it_back_to_the_float_network(made):
    net, prepared = nets.resnet(), made("resnet", "ort").eval()
    with torch.no_grad():
        for name, module in prepared.quantizers():
            if ".weight_" in name:
                module.lo, module.hi = -3, 3  # three bits: there is something to gain
                module.first_scale.mul_(127 / 3)
    images = nets.images(64, 77)

    def error():
        with torch.no_grad():
            return distillation_loss(prepared(images), net(images)).item()

    before = error()
    train(prepared, net, steps=40, batch=16)
    assert error() < 0.5 * before
    assert all(parameter.grad is not None for parameter in prepared.parameters())
    moved = [module.ratio.item() for name, module in prepared.quantizers() if ".activation_" in name]
    assert all(ratio != 1.0 for ratio in moved)


def test_the_state_that_is_kept_is_never_worse_on_what_no_step_sees(made):
    net, prepared = nets.resnet(), made("resnet", "ort")
    before = {name: value.clone() for name, value in prepared.state_dict().items()}
    held, plan = nets.images(16, 40), Training(steps=4, batch=8, rate=3.0)
    course = train_in_time(prepared, net, nets.images(32, 30), held, plan)
    assert (course.steps, course.best_step) == (4, 0)
    assert course.held_best_db == course.held_start_db
    assert all(torch.equal(before[name], value) for name, value in prepared.state_dict().items())


def test_training_ends_when_its_time_is_over(made):
    net, prepared = nets.resnet(), made("resnet", "ort")
    plan = Training(steps=1000, batch=8, rate=1e-4, budget_s=1e-3)
    course = train_in_time(prepared, net, nets.images(32, 30), nets.images(16, 40), plan)
    assert course.steps < 1000
    assert not prepared.training


@pytest.mark.slow
# Of torch's compiler, which makes the context object of a Function as it warns others not to.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_it_trains_alike(made):
    net, plain, compiled = nets.resnet(), made("resnet", "ort").eval(), made("resnet", "ort").eval()
    wanted = train(plain, net, steps=3)
    got = train(compiled, net, steps=3, forward=torch.compile(compiled, backend="aot_eager", fullgraph=True))
    assert got == pytest.approx(wanted, rel=1e-3)
    with pytest.raises(UsageError, match="the module that torch.compile was called with"):
        convert(torch.compile(compiled, backend="aot_eager"))
    a, b = convert(plain), convert(compiled)
    for name, value in a.graph.initializers.items():
        if name.endswith("weight_quantized"):
            steps = value.const_value.numpy().astype(int) - b.graph.initializers[name].const_value.numpy()
            assert np.abs(steps).max() <= 1


@pytest.mark.slow
def test_two_processes_end_with_one_network(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TWO_PROCESSES)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env={**env, "RANK": str(rank), "WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=180)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    ratios = [value for name, value in first["state"].items() if name.endswith("activation_x.ratio")]
    assert ratios and ratios[0] != 1.0


def test_an_engine_of_the_converted_model_decides_as_the_forward(made, tmp_path):
    prepared = made("resnet", "ort").eval()
    convert(prepared, tmp_path / "net.onnx")
    images = nets.images(64, 21)
    with torch.no_grad():
        wanted = prepared(images).numpy()
    samples = {"x": images.numpy(), "labels": wanted.argmax(1)}
    bench = quantrt.config.BenchConfig(warmup_s=0.01, duration_s=0.05, max_duration_s=0.1)
    config = quantrt.BuildConfig(bench=bench)
    with quantrt.build(tmp_path / "net.onnx", validation=samples, config=config) as engine:
        got = engine.run({"x": images.numpy()})[engine.outputs[0].name]
    assert (got.argmax(1) == wanted.argmax(1)).mean() >= 0.98  # one in 64 may lie on a tie
    noise = np.square(got - wanted).sum() / np.square(wanted).sum()
    assert noise < 1e-4


def test_the_loss_is_the_divergence_of_probabilities():
    wanted = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
    logits = torch.tensor([[1.0, 1.0, 0.0], [0.5, 0.0, -0.5]], requires_grad=True)
    p, q = torch.softmax(wanted / 2, 1), torch.softmax(logits / 2, 1)
    by_hand = 4 * (p * (p / q).log()).sum(1).mean()
    assert distillation_loss(logits, wanted, temperature=2.0).item() == pytest.approx(
        by_hand.item(), rel=1e-5
    )
    assert distillation_loss(wanted, wanted).item() == pytest.approx(0.0, abs=1e-7)
    with pytest.raises(UsageError, match="different shapes"):
        distillation_loss(logits, wanted[:1])
    with pytest.raises(UsageError, match="temperature"):
        distillation_loss(logits, wanted, temperature=0.0)


def _free_port() -> str:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
