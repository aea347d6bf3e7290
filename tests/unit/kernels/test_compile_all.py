"""Compiling in processes: answers, deaths, hangs and deadlines, with processes that pretend."""

import io
import json
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from quantrt import worker_process
from quantrt.errors import DataError, DeviceError
from quantrt.kernels import compile_all as module
from quantrt.kernels.compile_all import CompileFailure, compile_all, compilers
from quantrt.kernels.compile_worker import answer, reason
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key, spec_from_json, spec_to_json

PRETENDER = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    name = request["spec"]["function"]
    if name == "dies":
        os.abort()
    if name == "hangs":
        time.sleep(60)
    if name == "fails":
        answer = {"error": "too large"}
    else:
        answer = {"cubin": "QUJD", "symbol": name, "shared_bytes": request["capability"], "extra_pointers": 2,
                  "registers": 10, "spills": 0, "overlaps": request["capability"] >= 90, "facts": {}}
    print(json.dumps(answer), flush=True)
"""


def spec(function: str, **constants: object) -> KernelSpec:
    return KernelSpec(
        "family", function, (("x_ptr", "*fp16"),), frozenset({"x_ptr"}), tuple(constants.items())
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Processes that pretend to compile, as they are started."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*asked: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PRETENDER]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null))
        return processes[-1]

    monkeypatch.setattr(worker_process, "_start", start)
    return processes


def test_every_capability_of_every_kernel(started):
    told: list[tuple[int, int]] = []
    specs = [spec("one"), spec("two"), spec("one")]
    found = compile_all(specs, [80, 90], workers=2, on_progress=lambda *row: told.append(row))
    assert list(found) == specs[:2]
    assert found[specs[0]] == CompiledKernel(
        specs[0],
        "one",
        {80: b"ABC", 90: b"ABC"},
        {80: 80, 90: 90},
        extra_pointers=2,
        registers=10,
        overlaps=True,
    )
    assert told == [(n, 4) for n in range(1, 5)]
    assert len(started) == 2


def test_a_failure_is_data(started):
    found = compile_all([spec("fails"), spec("one")], [90], workers=1)
    assert found[spec("fails")] == CompileFailure(spec("fails"), "sm_90: too large")
    assert isinstance(found[spec("one")], CompiledKernel)


def test_a_process_that_dies_costs_one_kernel(started):
    found = compile_all([spec("one"), spec("dies"), spec("two")], [90], workers=1)
    assert "killed by SIGABRT" in found[spec("dies")].reason
    assert isinstance(found[spec("one")], CompiledKernel)
    assert isinstance(found[spec("two")], CompiledKernel)
    assert len(started) == 2


def test_a_process_that_hangs_costs_one_kernel(started, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "KERNEL_LIMIT_S", 0.5)
    found = compile_all([spec("hangs"), spec("one")], [90], workers=1)
    assert found[spec("hangs")].reason == "sm_90: the compiler took more than 0.5 s"
    assert isinstance(found[spec("one")], CompiledKernel)


def test_after_the_deadline_nothing_is_waited_for(started):
    found = compile_all([spec("hangs"), spec("one")], [90], workers=1, deadline_s=0.3)
    assert {failure.reason for failure in found.values()} == {f"sm_90: {module.OUT_OF_TIME}"}


def test_no_process_is_left_behind(started):
    compile_all([spec("hangs"), spec("one")], [90], workers=2, deadline_s=0.3)
    assert started
    assert all(process.poll() is not None for process in started)


def test_a_pool_serves_several_calls_with_the_same_processes(started):
    with closing(compilers(2)) as pool:
        for name in ("one", "two", "three"):
            found = compile_all([spec(name), spec("dies")], [90], pool=pool)
            assert isinstance(found[spec(name)], CompiledKernel)
        assert 3 <= len(started) <= 5, "two, and one for each that died"
    assert all(process.poll() is not None for process in started)


def test_nothing_to_compile_starts_nothing(started):
    assert compile_all([], [90]) == {}
    assert started == []


def test_python_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DeviceError, match="cannot start a process"):
        compile_all([spec("one")], [90], workers=1)


def test_a_worker_answers_what_it_is_asked():
    request = {"spec": spec_to_json(spec("none")), "capability": 90}
    answers = [answer(request, io.BytesIO(b"what the last kernel said")) for _ in range(2)]
    assert answers == [{"error": "there is no kernel family 'family' with 'none'"}] * 2


@pytest.mark.parametrize("family", ["../secret", "os.path", "", "gemm/../rows"])
def test_families_are_folders_of_ours(family: str):
    request = {"spec": {**spec_to_json(spec("none")), "family": family}, "capability": 90}
    assert "there is no kernel family" in answer(request, io.BytesIO())["error"]


def test_the_reason_is_the_compiler_s_last_error():
    said = "loc: remark: fine\nptxas error : too much shared data (0x50000 bytes)\n"
    assert reason(RuntimeError("PassManager::run failed"), said) == (
        "RuntimeError: ptxas error : too much shared data (0x50000 bytes)"
    )
    assert reason(ValueError("at 3:1:\n  x = y\nNameError('y')\n"), "") == "ValueError: NameError('y')"
    assert reason(ValueError(""), "") == "ValueError: "


@pytest.mark.parametrize(
    "constants",
    [{}, {"A": 1, "B": (1, (2.5, "x"), ())}, {"A": None, "B": True}, {"A": 1e-30}],
    ids=["none", "nested", "null", "small"],
)
def test_a_spec_survives_json(constants: dict[str, object]):
    original = spec("one", **constants)
    again = spec_from_json(json.loads(json.dumps(spec_to_json(original))))
    assert again == original
    assert hash(again) == hash(original)
    assert kernel_key(again) == kernel_key(original)


def test_keys_tell_kernels_apart_and_stay_the_same():
    specs = [spec("one"), spec("two"), spec("one", A=1), spec("one", A=1.0), spec("one", A=(1,))]
    assert len({kernel_key(one) for one in specs}) == len(specs)
    assert kernel_key(spec("one")) == "family.one.5658a8cdd846f49d"


@pytest.mark.parametrize(
    "change",
    [
        {"family": 3},
        {"num_warps": "4"},
        {"num_stages": 0},
        {"aligned": [1]},
        {"signature": [["x"]]},
        {"is_exact": 1},
        {"other": 1},
        {"constants": {"A": 1}},
    ],
    ids=str,
)
def test_a_damaged_spec_is_an_error(change: dict[str, object]):
    with pytest.raises(DataError, match="kernel's description"):
        spec_from_json({**spec_to_json(spec("one")), **change})


def test_calls_from_several_threads_do_not_mix(started):
    found: dict[str, object] = {}

    def call(name: str) -> None:
        found[name] = compile_all([spec(name)], [90], workers=1)[spec(name)]

    threads = [threading.Thread(target=call, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: kernel.symbol for name, kernel in found.items()} == {"one": "one", "two": "two"}
