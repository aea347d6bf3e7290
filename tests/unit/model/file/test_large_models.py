# SPDX-License-Identifier: Apache-2.0
"""A model of more than 2 GB is read, run and saved without being held in memory."""

import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest

ROWS, COLUMNS = 180_000_000, 3
SIZE_BYTES = ROWS * COLUMNS * 4
MAX_GROWTH_BYTES = 150 << 20


@pytest.fixture
def large_model(tmp_path):
    """A table of 2.16 GB in a sparse file: only what is written takes disk."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[n] i) => (float[n,3] y)'
        " { t = Identity(table) y = Gather(t, i) }"
    )
    table = proto.graph.initializer.add(name="table", data_type=1, data_location=1, dims=[ROWS, COLUMNS])
    table.external_data.add(key="location", value="table.bin")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with (tmp_path / "table.bin").open("wb") as file:
        file.truncate(SIZE_BYTES)
        file.seek((ROWS - 1) * COLUMNS * 4)
        file.write(np.array([1, 2, 3], np.float32).tobytes())
    assert SIZE_BYTES > 2**31
    return tmp_path


SCRIPT = """
    import json, sys
    from pathlib import Path
    import numpy as np
    from quantrt.ir.session import float_session
    from quantrt.model.load import load_model
    from quantrt.model.file.save import save_model

    def memory(key):
        with open("/proc/self/status") as file:
            return 1024 * int(next(line for line in file if line.startswith(key)).split()[1])

    folder = Path(sys.argv[1])
    float_session  # imported: the library's own memory does not count
    start = memory("VmRSS")
    model = load_model(folder / "model.onnx")
    found = {"loaded": memory("VmHWM") - start}
    save_model(model.graph, folder / "saved.onnx")
    found["saved"] = memory("VmHWM") - start
    found["same"] = load_model(folder / "saved.onnx").fingerprint.weights == model.fingerprint.weights
    found["loaded again"] = memory("VmHWM") - start
    session = float_session(model.graph, optimize=False)
    found["rows"] = session.run(None, {"i": np.array([0, ROWS - 1])})[0].tolist()
    found["running"] = memory("VmRSS") - start
    found["bytes"] = model.file_bytes
    print(json.dumps(found))
"""


@pytest.mark.slow
def test_it_is_never_held_in_memory(large_model):
    import json

    script = textwrap.dedent(SCRIPT).replace("ROWS", str(ROWS))
    done = subprocess.run(
        [sys.executable, "-c", script, str(large_model)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == [[0, 0, 0], [1, 2, 3]]
    assert found["same"]
    assert found["bytes"] == SIZE_BYTES + (large_model / "model.onnx").stat().st_size
    for moment in ("loaded", "saved", "loaded again", "running"):
        assert found[moment] < MAX_GROWTH_BYTES, f"{moment}: {found}"
    assert (large_model / "saved.onnx.data").stat().st_size == SIZE_BYTES
    (large_model / "saved.onnx.data").unlink()
