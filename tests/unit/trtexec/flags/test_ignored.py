# SPDX-License-Identifier: Apache-2.0
"""What a loaded engine leaves without effect."""

from quantrt.trtexec.flags.ignored import flags_of_builds
from quantrt.trtexec.flags.parse import read_words

WORDS = (
    "--loadEngine=m.qrt", "--onnx=m.onnx", "--fp16", "--stronglyTyped", "--calib=c", "--timingCacheFile=t",
    "--minShapes=x:1", "--optShapes=x:1", "--maxShapes=x:1", "--profilingVerbosity=none", "--skipInference",
    "--iterations=3", "--exportTimes=t.json", "--noTF32", "--fp16",
)  # fmt: skip


def names(*, has_profiles: bool) -> list[str]:
    return [flag.name for flag in flags_of_builds(read_words(WORDS), has_profiles=has_profiles)]


def test_flags_of_a_build_are_named_once():
    build = ["--onnx", "--fp16", "--stronglyTyped", "--calib", "--timingCacheFile"]
    assert names(has_profiles=False) == build


def test_bounds_of_shapes_are_those_of_an_engine_that_has_some():
    assert set(names(has_profiles=True)) - set(names(has_profiles=False)) == {"--minShapes", "--maxShapes"}
