# SPDX-License-Identifier: Apache-2.0
"""What command lines ask for, and contradictions in them."""

from pathlib import Path

import pytest

from quantrt.errors import UsageError
from quantrt.trtexec.flags.parse import read_words
from quantrt.trtexec.flags.settings import Settings, read_settings


def settings(*words: str) -> Settings:
    return read_settings(read_words(["--onnx=m.onnx", *words]))


def test_what_trtexec_does_without_flags():
    found = settings()
    assert found.build.onnx == Path("m.onnx")
    assert (found.run.iterations, found.run.warm_up_ms, found.run.duration_s) == (10, 200.0, 3.0)
    assert (found.run.streams, found.run.copies, found.run.spins, found.run.captures) == (
        1,
        True,
        False,
        True,
    )
    assert found.report.avg_runs == 10
    assert found.report.percentiles == (90.0, 95.0, 99.0)
    assert found.device == "0"
    assert found.build.precisions == frozenset()
    assert found.build.constraint == "none"


def test_the_flags_of_a_build(tmp_path: Path):
    found = settings(
        "--int8", "--fp16", "--calib-random", "--memPoolSize=workspace:512M", "--tacticSources=-CUDNN",
        "--timingCacheFile=t.json", "--builderOptimizationLevel=5", "--saveEngine=~/m.qrt",
        "--precisionConstraints=prefer", "--layerPrecisions=/a:fp16", "--profilingVerbosity=detailed",
    ).build  # fmt: skip
    assert found.precisions == {"int8", "fp16"}
    assert found.calibration.sources == ("--calib-random",)
    assert found.pools_bytes == {"workspace": 2**29}
    assert found.sources == (("CUDNN", False),)
    assert (found.level, found.constraint, found.verbosity) == (5, "prefer", 2)
    assert found.save == Path.home() / "m.qrt"
    assert found.layer_precisions == (("/a", "fp16"),)


def test_old_flags_mean_what_they_meant():
    found = settings("--workspace=64", "--heuristic", "--buildOnly").build
    assert found.pools_bytes == {"workspace": 2**26}
    assert found.level == 2
    assert found.skips_inference
    assert settings("--workspace=1", "--memPoolSize=workspace:1").build.pools_bytes == {"workspace": 2**20}


def test_shapes_without_a_profile_are_all_that_the_engine_takes():
    (profile,) = settings("--shapes=x:2x4").build.profiles
    assert profile.least == profile.best == profile.most == {"x": (2, 4)}
    assert len(settings("--shapes=x:2x4", "--optShapes=x:8x4").build.profiles) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--saveEngine=a", "--loadEngine=b"], "either loaded or saved"),
        (["--timeDeserialize"], "no engine file to open"),
        (["--getPlanVersionOnly"], "no engine file to open"),
        (["--sparsity=force"], "no kernel uses 2:4 sparsity"),
        (["--useRuntime=lean"], "--useRuntime=lean cannot be done"),
        (["--runtimePlatform=WindowsAMD64"], "--runtimePlatform=WindowsAMD64 cannot be done"),
        (["--layerDeviceTypes=a:DLA"], "there is no DLA"),
        (["--memPoolSize=tacticSharedMem:1M"], "tacticSharedMem cannot be done"),
        (["--builderOptimizationLevel=6"], "0 to 5"),
        (["--device=1"], "the first GPU that this process sees"),
        (["--device=gpu"], "0, or cpu"),
        (["--stronglyTyped", "--best"], "contradict each other"),
        (["--calib-random", "--calib=nothing"], "random ranges"),
        (["--calib=nothing.cache"], "there is no file 'nothing.cache'"),
        (["--calib-data=nothing.npz"], "there is no file 'nothing.npz'"),
        (["--sleepTime=5"], "--sleepTime=5 cannot be done"),
        (["--persistentCacheRatio=0.5"], "cannot be done"),
        (["--infStreams=0"], "at least 1"),
        (["--infStreams=257"], "a context and memory of its own"),
        (["--workspace=64", "--memPoolSize=workspace:1"], "two bounds"),
        (["--heuristic", "--builderOptimizationLevel=3"], "another level is given"),
        (["--loadInputs=x:a", "--loadInputs=x:b"], "--loadInputs gives 'x' two files"),
        (["--shapes=x:1x2,x:1x3"], "--shapes gives 'x' two values"),
        (["--minShapes=x:1,x:2", "--optShapes=x:2", "--maxShapes=x:2"], "--minShapes gives 'x' two values"),
        (["--avgRuns=0"], "at least 1"),
        (["--loadInputs=x:f", "--loadRefOutputs=y:f"], "without a limit"),
        (["--loadRefOutputs=y:f"], "needs the inputs that they are of"),
        (["--accuracyAlgorithm=l1", "--atol=1"], "l0 alone"),
        (["--refPair=0", "--refPair=0"], "--refPair=0 is given twice"),
        (["--exportTimes=/no/such/folder/t.json"], "its folder does not exist"),
        (["--exportTimes=/tmp"], "it is a folder"),
        (["--exportTimes="], "needs the name of a file"),
        (["--saveEngine="], "needs the name of a file"),
        (
            ["--loadInputs=x:f", "--loadRefOutputs=y:f", "--accuracyThreshold=1", "--skipInference"],
            "cannot be compared without inference",
        ),
    ],
)
def test_contradictions(words: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        settings(*words)


def test_neither_a_model_nor_an_engine():
    with pytest.raises(UsageError, match="no model was given"):
        read_settings(read_words(["--int8"]))


def test_nothing_is_refused_at_its_default():
    words = ["--sleepTime=0", "--persistentCacheRatio=0", "--useRuntime=full", "--sparsity=enable"]
    assert settings(*words, "--layerDeviceTypes=*:GPU", "--runtimePlatform=SameAsBuild").run.idle_ms == 0


def test_pairs_of_inputs_and_references():
    words = ["--refPair=1", "--loadInputs=x:b", "--loadRefOutputs=y:d", "--refPair=0", "--loadInputs=x:a"]
    found = settings(*words, "--accuracyThreshold=0.1").run
    assert [dict(pair.inputs) for pair in found.pairs] == [{"x": Path("a")}, {"x": Path("b")}]
    assert found.has_references
    assert found.threshold == 0.1


def test_the_flags_of_the_inference():
    found = settings(
        "--iterations=5", "--duration=-1", "--warmUp=0", "--idleTime=2.5", "--infStreams=3", "--threads",
        "--noDataTransfers", "--useSpinWait", "--noCudaGraph", "--useProfile=0", "--shapes=x:1x2",
    ).run  # fmt: skip
    assert (found.iterations, found.duration_s, found.warm_up_ms, found.idle_ms) == (5, -1.0, 0.0, 2.5)
    assert (found.streams, found.uses_threads, found.copies) == (3, True, False)
    assert (found.spins, found.captures) == (True, False)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--saveEngine=./m.onnx",), "--saveEngine='m.new.onnx'"),
        (("--exportTimes=a.json", "--exportProfile=a.json"), "--exportProfile='a.new.json'"),
        (("--loadInputs=x:x.bin", "--exportOutput=x.bin"), "--exportOutput='x.new.bin'"),
    ],
)
def test_nothing_is_written_over_what_is_read_or_written_too(
    words: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="in place of") as caught:
        settings(*words)
    assert caught.value.hint == hint
    assert settings("--exportTimes=a.json", "--exportProfile=b.json").report.files
