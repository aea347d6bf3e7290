# SPDX-License-Identifier: Apache-2.0
"""The executable that other programs find as trtexec."""

import os
import subprocess
from pathlib import Path

import pytest

from quantrt.errors import UsageError
from quantrt.trtexec.shim import install_shim


def test_it_runs_from_anywhere_and_passes_words_on(tmp_path: Path):
    path = install_shim(tmp_path, force=False)
    assert os.access(path, os.X_OK)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    words = ["trtexec", "--onnx=no such file.onnx", "--refit"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    first = "&&&& RUNNING TensorRT.trtexec [TensorRT v101600] # trtexec '--onnx=no such file.onnx' --refit"
    assert done.stdout.splitlines()[0] == first
    assert done.stdout.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec [TensorRT v101600] # ")
    assert done.returncode != 0
    assert [file.name for file in tmp_path.iterdir()] == ["trtexec"]


def test_its_own_file_is_replaced_and_another_is_not(tmp_path: Path):
    install_shim(tmp_path, force=False)
    install_shim(tmp_path, force=False)
    (tmp_path / "trtexec").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="is another program") as caught:
        install_shim(tmp_path, force=False)
    assert "--force" in str(caught.value.hint)
    assert (tmp_path / "trtexec").read_bytes() == b"\x7fELF"
    install_shim(tmp_path, force=True)
    assert (tmp_path / "trtexec").read_text().startswith("#!/bin/sh\n")


def test_a_link_is_not_written_through(tmp_path: Path):
    (tmp_path / "real").write_bytes(b"\x7fELF")
    (tmp_path / "trtexec").symlink_to("real")
    with pytest.raises(UsageError, match="is a link"):
        install_shim(tmp_path, force=False)
    install_shim(tmp_path, force=True)
    assert (tmp_path / "real").read_bytes() == b"\x7fELF"
    assert not (tmp_path / "trtexec").is_symlink()


def test_folders_that_will_not_do(tmp_path: Path):
    with pytest.raises(UsageError, match="there is no folder"):
        install_shim(tmp_path / "none", force=False)
    (tmp_path / "trtexec").mkdir()
    with pytest.raises(UsageError, match="it is a folder"):
        install_shim(tmp_path, force=True)
