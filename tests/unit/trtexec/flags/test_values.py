# SPDX-License-Identifier: Apache-2.0
"""Values of flags in trtexec's spellings."""

from pathlib import Path

import pytest

from quantrt.errors import UsageError
from quantrt.trtexec.flags.values import (
    IoFormat,
    read_files,
    read_formats,
    read_layers,
    read_number,
    read_percents,
    read_pools,
    read_shapes,
    read_signed,
    read_whole,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("input:1x3x224x224", {"input": (1, 3, 224, 224)}),
        ("a:1x2,b:3", {"a": (1, 2), "b": (3,)}),
        ("'Input:0':1x3,Input:1:4x5", {"Input:0": (1, 3), "Input:1": (4, 5)}),
        ("s:scalar,t:", {"s": (), "t": ()}),
        ("input_*:8x128", {"input_*": (8, 128)}),
        ("x:1X3", {"x": (1, 3)}),
    ],
)
def test_shapes(text: str, want: dict):
    assert read_shapes("--shapes", text) == want


@pytest.mark.parametrize("text", ["1x3x224", "x:1x", "x:1xN", ":1x3", "a*b*:1", "x:-1x3", ""])
def test_shapes_that_cannot_be_read(text: str):
    with pytest.raises(UsageError, match="of --shapes"):
        read_shapes("--shapes", text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("workspace:512M", {"workspace": 2**29}),
        ("workspace:2", {"workspace": 2**21}),
        ("workspace:0.5G,dlaSRAM:1k", {"workspace": 2**29, "dlaSRAM": 1024}),
        ("workspace:100B", {"workspace": 100}),
    ],
)
def test_memory_pools(text: str, want: dict):
    assert read_pools("--memPoolSize", text) == want


def test_an_unknown_memory_pool():
    with pytest.raises(UsageError, match="unknown memory pool 'workspaces'") as caught:
        read_pools("--memPoolSize", "workspaces:1G")
    assert caught.value.hint == "--memPoolSize=workspace:1G"


@pytest.mark.parametrize(
    "text", ["workspace:x", "workspace:-1", "workspace:nan", "workspace", "workspace:infG"]
)
def test_sizes_that_cannot_be_read(text: str):
    with pytest.raises(UsageError, match="of --memPoolSize"):
        read_pools("--memPoolSize", text)


def test_formats_with_and_without_types():
    found = read_formats("--inputIOFormats", "fp16:chw+hwc8,int8:chw32,chw")
    assert found == (
        IoFormat("fp16", ("chw", "hwc8")),
        IoFormat("int8", ("chw32",)),
        IoFormat(None, ("chw",)),
    )


@pytest.mark.parametrize(("text", "hint"), [("fp33:chw", "'fp32'"), ("fp32:chww", "'chw'")])
def test_formats_that_are_unknown(text: str, hint: str):
    with pytest.raises(UsageError) as caught:
        read_formats("--inputIOFormats", text)
    assert caught.value.hint == hint


def test_files_layers_and_signed_names():
    assert read_files("--loadInputs", "a:x.bin,b:0:y.bin") == {"a": Path("x.bin"), "b:0": Path("y.bin")}
    layers = read_layers("--layerPrecisions", "/conv*:fp16,/a:0:fp32")
    assert layers == (("/conv*", "fp16"), ("/a:0", "fp32"))
    assert read_signed("--tacticSources", "-CUDNN,+CUBLAS") == (("CUDNN", False), ("CUBLAS", True))
    with pytest.raises(UsageError, match="a name with \\+ or -"):
        read_signed("--tacticSources", "CUDNN")


def test_numbers_and_their_bounds():
    assert read_whole("--iterations", "0") == 0
    assert read_number("--duration", "-1", least=-1) == -1.0
    assert read_percents("--percentile", "50,99.9") == (50.0, 99.9)
    for name, text in (("--iterations", "1.5"), ("--iterations", "-1")):
        with pytest.raises(UsageError, match=name):
            read_whole(name, text)
    for text in ("fast", "inf", "-2"):
        with pytest.raises(UsageError, match="--warmUp"):
            read_number("--warmUp", text)
    with pytest.raises(UsageError, match="between 0 and 100"):
        read_percents("--percentile", "101")


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_shapes, "--shapes", "x:1x2,y:3,x:1x3"),
        (read_files, "--loadInputs", "x:a.bin,x:b.bin"),
        (read_pools, "--memPoolSize", "workspace:1G,workspace:2G"),
        (read_signed, "--tacticSources", "+CUDNN,-CUDNN"),
    ],
)
def test_one_name_with_two_values_is_no_guess(read, name: str, text: str):
    with pytest.raises(UsageError, match=f"{name} gives '(x|workspace|CUDNN)' two values"):
        read(name, text)


def test_a_value_may_be_said_twice():
    assert read_shapes("--shapes", "x:1x2,x:1x2") == {"x": (1, 2)}
    assert read_signed("--tacticSources", "-CUDNN,-CUDNN") == (("CUDNN", False),)
