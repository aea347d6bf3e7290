# SPDX-License-Identifier: Apache-2.0
"""What C code prints goes to stderr for a while."""

import subprocess
import sys

CODE = """
import ctypes
from quantrt.assign.on_stderr import prints_on_stderr
libc = ctypes.CDLL(None)
print("before")
with prints_on_stderr():
    libc.puts(b"chatter")
libc.puts(b"behind")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_what_a_library_prints_is_not_on_stdout():
    done = run(CODE)
    assert sorted(done.stdout.split()) == ["before", "behind"]
    assert done.stderr == "chatter\n"


def test_without_a_stderr_nothing_is_moved():
    done = run("import os\nos.close(2)\n" + CODE)
    assert sorted(done.stdout.split()) == ["before", "behind", "chatter"]


def test_an_error_inside_leaves_stdout_where_it_was():
    done = run(
        "from quantrt.assign.on_stderr import prints_on_stderr\n"
        "try:\n    with prints_on_stderr():\n        raise ValueError\n"
        "except ValueError:\n    print('caught')\n"
    )
    assert (done.stdout, done.stderr) == ("caught\n", "")
