# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled where Triton's usual folder cannot be written, too."""

import logging
import os
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

pytest.importorskip("triton")

from quantrt.kernels.borders.spec import kernel_of
from quantrt.kernels.compile_all import compile_all, compilers
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.triton_cache import triton_cache
from tests.conv_layers import layer


def test_the_usual_folder_is_made(tmp_path: Path):
    with ExitStack() as stack:
        assert triton_cache({"TRITON_HOME": str(tmp_path)}, stack) == tmp_path / ".triton" / "cache"
        own = {"TRITON_HOME": "/nowhere", "TRITON_CACHE_DIR": str(tmp_path / "own")}
        assert triton_cache(own, stack) == tmp_path / "own"
    assert (tmp_path / "own").is_dir()
    assert list((tmp_path / "own").iterdir()) == []


def test_without_it_there_is_one_for_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("")
    with ExitStack() as stack, caplog.at_level(logging.INFO, logger="quantrt.kernels.triton_cache"):
        folder = triton_cache({"TRITON_CACHE_DIR": str(tmp_path / "file" / "cache")}, stack)
        assert folder.is_dir()
        assert os.access(folder, os.W_OK)
    assert not folder.exists()
    assert "cannot be written (Not a directory): compiled kernels are not kept there" in caplog.text


def test_kernels_compile_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with closing(compilers(1)) as pool:
        problem = layer(14, 64, 64, images=1, pads=(1, 1, 1, 1), outputs=("float32",), pad_code=-128)
        (found,) = compile_all([kernel_of(problem)], [90], pool=pool).values()
    assert isinstance(found, CompiledKernel), found
