# SPDX-License-Identifier: Apache-2.0
"""The command as a process: start-up, a bare environment, signals, broken pipes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "openvino", "scipy", "rich", "shtab", "PIL", "ml_dtypes")

BLOCKED = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Block())
from quantrt.cli.main import entry_point
sys.argv = ['quantrt', *sys.argv[1:]]
sys.exit(entry_point())
"""


def quantrt(*words: str, code: str | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    start = ["-m", "quantrt"] if code is None else ["-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *start, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        **options,
    )


@pytest.mark.parametrize("verb", [None, "build", "calibrate", "compare", "inspect"])
def test_help_works_without_a_single_library(verb: str | None):
    done = quantrt(*([verb] if verb else []), "-h", code=BLOCKED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: quantrt" in done.stdout


def test_a_usage_error_works_without_a_single_library():
    done = quantrt("build", "--itn8", code=BLOCKED)
    assert done.returncode == 2
    assert done.stderr == "error: unknown option '--itn8' of quantrt build\n  try --int8\n"


def test_a_missing_library_is_reported_as_text():
    done = quantrt("doctor", code=BLOCKED)
    assert done.returncode == 4
    assert "error: the package 'rich' cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_loads_no_library():
    code = (
        "import sys\nfrom quantrt.cli.main import main\nmain(['build', '-h'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = quantrt(code=code)
    assert done.stderr == "[]\n"


def test_help_loads_little():
    """What it takes to start grows with the modules: a Python of its own loads about 30."""
    code = (
        "import sys\nfrom quantrt.cli.main import main\nmain(['-h'])\n"
        "own = [name for name in sys.modules if name.startswith('quantrt')]\n"
        "print(len(own), len(sys.modules), file=sys.stderr)"
    )
    own, loaded = map(int, quantrt(code=code).stderr.split())
    assert own < 60
    assert loaded < 200


def test_doctor_prints_one_json_document():
    done = quantrt("doctor", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert {"cpu", "isa", "gpu"} <= set(document["device"])
    assert [row["precision"] for row in document["precisions"]] == ["fp32", "bf16", "int8"]


def test_tables_in_a_pipe_have_no_colour_and_fit():
    done = quantrt("doctor")
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_a_reader_that_leaves_is_no_error():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m quantrt build -h | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    script = f"for i in 1 2 3; do {command}; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stderr == ""
    assert set(done.stdout.split()) <= {"0", "141"}


def test_a_closed_pipe_gives_141():
    code = (
        "import os, sys\nfrom quantrt.cli import main as m\nread, write = os.pipe()\nos.close(read)\n"
        "os.dup2(write, 1)\nsys.argv = ['quantrt', 'doctor', '--json']\nsys.exit(m.entry_point())"
    )
    done = quantrt(code=code)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--json"), ("inspect", "none.onnx", "--json")])
def test_output_that_cannot_be_written_gives_4(words: tuple[str, ...]):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "quantrt", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=60,
        )
    assert done.returncode == 4
    assert "error: cannot write to standard output\n  got No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_streams_are_no_error():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = (
        f"{sys.executable} -m quantrt doctor >&-; echo $?; {sys.executable} -m quantrt inspect none.onnx 2>&-"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 3)


def test_a_name_that_the_terminal_cannot_show_is_escaped():
    code = (
        "import sys, quantrt.device as d\nold = d.describe_device\n"
        "d.describe_device = lambda: {**old(), 'cpu': 'Zw\u00f6lfkern'}\n"
        "from quantrt.cli.main import entry_point\nsys.argv = ['quantrt', 'doctor']\nsys.exit(entry_point())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert r"Zw\xf6lfkern" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_command_leaves_no_temporary_files(number: signal.Signals, tmp_path: Path):
    code = (
        "import signal, sys, time, quantrt.device\nfrom quantrt.ir.scratch import scratch_folder\n"
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"  # which may be ignored here, behind nohup
        "def wait():\n    with scratch_folder():\n"
        "        print('ready', flush=True)\n        time.sleep(60)\n"
        "quantrt.device.describe_device = wait\nsys.argv = ['quantrt', 'doctor']\n"
        "from quantrt.cli.main import entry_point\nsys.exit(entry_point())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, b"interrupted\n")
    assert list(tmp_path.glob("quantrt-*")) == []


def test_a_signal_that_is_ignored_stays_so():
    code = (
        "import os, signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "import quantrt.device as d\nold = d.describe_device\n"
        "d.describe_device = lambda: [os.kill(os.getpid(), signal.SIGHUP), old()][1]\n"
        "sys.argv = ['quantrt', 'doctor']\n"
        "from quantrt.cli.main import entry_point\nsys.exit(entry_point())"
    )
    assert quantrt(code=code).returncode == 0


def test_control_c_gives_130():
    code = (
        # A job in the background of a shell without job control inherits an ignored SIGINT.
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import time, quantrt.device\nprint('ready', flush=True)\n"
        "quantrt.device.describe_device = lambda: time.sleep(60)\n"
        "from quantrt.cli.main import main\nimport sys\nsys.exit(main(['doctor']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "interrupted\n"


def test_a_process_that_ends_searches_for_no_cycles():
    """Collections do not look at what is frozen: it is left for the system to free."""
    code = (
        "import gc, sys\nfrom quantrt.cli.main import entry_point\n"
        "sys.argv = ['quantrt', 'doctor', '--json']\ncode = entry_point()\n"
        "print(len(gc.get_objects()), gc.get_freeze_count(), file=sys.stderr)\nsys.exit(code)"
    )
    done = quantrt(code=code)
    assert done.returncode == 0
    seen, frozen = map(int, done.stderr.split())
    assert frozen > 100 * seen
