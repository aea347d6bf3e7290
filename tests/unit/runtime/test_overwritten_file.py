# SPDX-License-Identifier: Apache-2.0
"""An engine whose file is overwritten in place while it is loaded, as `cp` and `scp` do."""

import mmap
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quantrt.runtime.engine as engine_module
from quantrt.plan.serialize import save_plan
from quantrt.runtime.engine import load
from tests.plans import LIBRARIES, make_plan

SIDE = 640
"""Of the weight: 1.6 MB, which lies in the file apart from the graph."""
TEXT = f"wide (float[N,{SIDE}] x) => (float[N,{SIDE}] y) {{ h = MatMul(x, w) y = Relu(h) }}"

SCRIPT = """
import sys
import numpy as np
import quantrt.runtime.engine as engine

path, most_bytes = sys.argv[1:]
engine.MOST_COPIED_BYTES = int(most_bytes)
x = np.random.default_rng(0).standard_normal((1, 640)).astype(np.float32)
loaded = engine.load(path)
want = loaded.run({"x": x})["y"]
open(path, "r+b").truncate(0)
for batch in (1, 2, 3, 4, 5):
    found = loaded.run({"x": np.repeat(x, batch, axis=0)})["y"]
    assert np.allclose(found, want, rtol=0, atol=1e-4), batch
loaded.save(path)
print("right")
"""


def overwritten(path: Path, most_bytes: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", SCRIPT, str(path), str(most_bytes)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(params=LIBRARIES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    weights = {"w": np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32)}
    save_plan(make_plan(request.param, TEXT, weights), tmp_path / "model.qrt")
    return tmp_path / "model.qrt"


def test_an_engine_goes_on_with_what_it_loaded(path: Path):
    whole = path.read_bytes()
    done = overwritten(path, engine_module.MOST_COPIED_BYTES)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    assert path.read_bytes() == whole, "it can be written again"


def test_one_that_is_larger_stays_in_its_file(path: Path):
    """OpenVINO's process is ended as it runs, ONNX Runtime's engine cannot be saved."""
    assert overwritten(path, SIDE * SIDE).returncode in (-signal.SIGBUS, 1)


def test_weights_are_in_memory_up_to_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch):
    def is_mapped() -> bool:
        with load(path) as engine:
            bases = [largest.base for largest in engine.plan.model.weights.values()]
        while any(isinstance(base, np.ndarray) for base in bases):
            bases = [base.base if isinstance(base, np.ndarray) else base for base in bases]
        return any(isinstance(base, mmap.mmap | memoryview) for base in bases)

    assert not is_mapped()
    monkeypatch.setattr(engine_module, "MOST_COPIED_BYTES", SIDE * SIDE)
    assert is_mapped()
