# SPDX-License-Identifier: Apache-2.0
"""Files that builds keep for each other: one at a time adds to them, and none ends because of them."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quantrt.errors import DeviceError, UsageError
from quantrt.ir import kept_file
from quantrt.ir.kept_file import add_to_kept, check_kept

HOLD = """
import sys, time
from pathlib import Path
from quantrt.ir.kept_file import add_to_kept
with add_to_kept(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process inside such a block."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "t.json")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_was_killed_holds_nothing_up(holder: subprocess.Popen[bytes], tmp_path: Path, caplog):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with add_to_kept(tmp_path / "t.json"):
        (tmp_path / "t.json").write_text("new")
    assert caplog.text == ""


def test_a_process_that_was_stopped_holds_up_for_a_while(
    holder: subprocess.Popen[bytes], tmp_path: Path, caplog, monkeypatch
):
    monkeypatch.setattr(kept_file, "WAIT_S", 0.1)
    with add_to_kept(tmp_path / "t.json"):
        (tmp_path / "t.json").write_text("new")
    assert f"no lock on '{tmp_path}'" in caplog.text
    assert (tmp_path / "t.json").read_text() == "new"


def test_a_file_system_without_locks_is_told(tmp_path: Path, caplog, monkeypatch):
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with add_to_kept(tmp_path / "t.json"):
        pass
    assert f"no lock on '{tmp_path}'" in caplog.text


def test_what_cannot_be_kept_is_told(tmp_path: Path, caplog):
    with add_to_kept(tmp_path / "t.json"):
        raise DeviceError("cannot write 't.json'", got="No space left on device")
    assert "cannot write 't.json' (No space left on device): later builds do without" in caplog.text


def test_a_name_under_which_nothing_can_be_kept_fails_early(tmp_path: Path):
    check_kept(None)
    check_kept(str(tmp_path / "t.json"))
    with pytest.raises(UsageError, match="its folder does not exist"):
        check_kept(str(tmp_path / "gone" / "t.json"))
    with pytest.raises(UsageError, match="it is a folder"):
        check_kept(str(tmp_path))


def test_a_read_only_folder_is_told_and_no_error(tmp_path: Path, caplog, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may be run as root
    check_kept(str(tmp_path / "t.json"))
    assert "its folder is read-only for this user: what is in it is used, and nothing is added" in caplog.text
