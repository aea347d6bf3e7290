# SPDX-License-Identifier: Apache-2.0
"""Every command and every Python line of docs/ runs, in a folder that has nothing but the demo's files.

A page's `bash` blocks run in order, its `python` blocks as one script. Blocks of other kinds are output.
Blocks marked `gpu` run where a GPU can be used; elsewhere each of their commands has to end in the error that
says what is missing; `inspect` gets an engine that was written for a GPU. To be quick, timing is shortened,
the files of samples are cut to their first, and `quantrt` is a fork of a process that has imported it.
Nothing else is changed.
"""

import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quantrt.plan.serialize import save_plan
from tests.programs import cuda_plan

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SERVER = Path(__file__).with_name("command_server.py")
SAMPLES = {"calibration.npz": 32, "validation.npz": 32}
ARTEFACTS = ("digits.qrt", "digits.ranges")
BLOCK = re.compile(r"^```(\w+)( gpu)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GPU_ENGINE = "digits-cuda.qrt"
WHAT_IS_MISSING = ("this machine has no usable GPU", "pip install 'quantrt[cuda]'")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")

SHIM = f"""#!/usr/bin/env bash
short=()
case "$1" in build|bench) short=(--warmup 0.01 --duration 0.02 --max-duration 0.05 --min-runs 3) ;; esac
exec {sys.executable} -S -E {SERVER} run "$QUANTRT_SERVER" "$@" "${{short[@]}}"
"""

SHORT_TIMING = """
from quantrt.config import BenchConfig, BuildConfig
BuildConfig.__init__.__kwdefaults__["bench"] = BenchConfig(
    warmup_s=0.01, duration_s=0.02, max_duration_s=0.05, min_runs=3
)
"""

MAKE_ARTEFACTS = """
quantrt build demo/digits_resnet.onnx --int8 --calib-data demo/calibration.npz \
  --valid-data demo/validation.npz -o digits.qrt
quantrt calibrate demo/digits_resnet.onnx --calib-data demo/calibration.npz -o digits.ranges
"""


def blocks(page: Path, kind: str, *, gpu: bool = False) -> list[str]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for name, mark, text in found if name == kind and bool(mark) == gpu]


def commands_of(block: str) -> list[str]:
    """Lines, those that end in a backslash together with the next."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def make_folder(folder: Path) -> Path:
    (folder / "demo").mkdir(parents=True)
    shutil.copy(ROOT / "demo" / "digits_resnet.onnx", folder / "demo")
    for name, samples in SAMPLES.items():
        with np.load(ROOT / "demo" / name, allow_pickle=False) as arrays:
            np.savez(folder / "demo" / name, **{key: arrays[key][:samples] for key in arrays})
    shim = folder / "bin" / "quantrt"
    shim.parent.mkdir()
    shim.write_text(SHIM)
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return folder


def run(words: list[str], folder: Path, stdin: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        words,
        input=stdin,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="session")
def server() -> Iterator[None]:
    """What runs `quantrt` in the folders of pages, one for each worker of a test run."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "socket"
        patch.setenv("QUANTRT_SERVER", str(path))
        words = [sys.executable, str(SERVER), "serve", str(path)]
        with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
            try:
                while process.poll() is None and not path.exists():
                    time.sleep(0.05)
                assert process.poll() is None
                yield
            finally:
                process.terminate()


@pytest.fixture(scope="session")
def artefacts(server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an engine and a ranges file, made once for all workers of a test run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "docs-artefacts"
    with (shared / "docs-artefacts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make_folder(folder)
            done = run(["bash", "-euo", "pipefail"], folder, MAKE_ARTEFACTS)
            (folder / "log").write_text(done.stdout + done.stderr)
            (folder / "returncode").write_text(str(done.returncode))
    assert (folder / "returncode").read_text() == "0", (folder / "log").read_text()
    return folder


@pytest.fixture
def folder(tmp_path: Path, artefacts: Path) -> Path:
    made = make_folder(tmp_path / "work")
    for name in ARTEFACTS:
        shutil.copy(artefacts / name, made)
    save_plan(cuda_plan(), made / GPU_ENGINE)
    return made


@pytest.fixture(scope="session")
def has_gpu(artefacts: Path) -> bool:
    """Whether engines for a GPU can be built here."""
    done = run(["quantrt", "doctor", "--json"], artefacts, "")
    return json.loads(done.stdout)["cuda"]["build"] is None


def test_there_are_pages_with_commands():
    assert sum(bool(blocks(page, "bash")) for page in PAGES) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], ids=lambda page: page.stem)
def test_commands(page: Path, folder: Path):
    for block in blocks(page, "bash"):
        done = run(["bash", "-euo", "pipefail"], folder, block)
        assert done.returncode == 0, f"{page.name}:\n{block}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_python(page: Path, folder: Path):
    script = "\n".join([SHORT_TIMING, *blocks(page, "python")])
    if "quantrt.torch.qat" in script:
        pytest.importorskip("onnxscript", reason="torch.onnx.export needs it: pip install 'quantrt[qat]'")
    done = run([sys.executable, "-"], folder, script)
    assert done.returncode == 0, f"{page.name}:\n{script}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "bash", gpu=True)], ids=lambda page: page.stem
)
def test_commands_for_a_gpu(page: Path, folder: Path, has_gpu: bool):
    for block in blocks(page, "bash", gpu=True):
        for command in commands_of(block):
            done = run(["bash", "-euo", "pipefail"], folder, command)
            assert done.returncode == (0 if has_gpu else 4), f"{command}\n{done.stdout}{done.stderr}"
            assert has_gpu or any(text in done.stderr for text in WHAT_IS_MISSING), done.stderr
            assert "Traceback" not in done.stderr
    if has_gpu:
        test_commands(page, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python", gpu=True)], ids=lambda page: page.stem
)
def test_python_for_a_gpu(page: Path, folder: Path, has_gpu: bool):
    script = "\n".join([SHORT_TIMING, *blocks(page, "python", gpu=True)])
    done = run([sys.executable, "-"], folder, script)
    assert (done.returncode == 0) is has_gpu, done.stderr
    assert has_gpu or "DeviceError" in done.stderr.splitlines()[-3], done.stderr


def test_the_sample_outputs_of_the_error_page_are_what_is_printed(server: None, tmp_path: Path):
    """There each bash block is followed by its output, stdout and stderr together."""
    folder = make_folder(tmp_path / "work")
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    found = BLOCK.findall(page)
    pairs = [(found[i][2], found[i + 1][2]) for i in range(len(found) - 1) if found[i][0] == "bash"]
    assert len(pairs) == 2
    for command, want in pairs:
        done = run(["bash", "-c", f"exec 2>&1\n{command}"], folder, "")
        assert done.stdout == want


def test_the_error_page_has_every_exit_code():
    from quantrt import errors

    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and kind is not errors.QuantRtError:
            assert any(f"`{name}`" in row and row.startswith(f"| {kind.exit_code} |") for row in rows), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path):
    missing = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert missing == []


def test_every_task_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"({page.name})" not in index] == []


def test_every_verb_has_a_page_that_runs_it():
    from quantrt.cli.main import COMMANDS

    commands = "\n".join(block for page in PAGES for block in blocks(page, "bash"))
    assert [command.name for command in COMMANDS if f"quantrt {command.name} " not in commands + " "] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_json_samples_parse(page: Path):
    for block in blocks(page, "json"):
        json.loads(block)
