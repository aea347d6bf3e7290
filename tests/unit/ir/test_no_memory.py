# SPDX-License-Identifier: Apache-2.0
"""What libraries say where there is no memory is this machine's failure, and no model's or data's."""

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.calibrate.taps import Taps
from quantrt.cli.failure import explain
from quantrt.errors import DeviceError
from quantrt.ir.no_memory import check_memory
from tests.nets import net

TEXTS = {
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. "
    "Status Message: void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) "
    "Failed to allocate memory for requested buffer of size 589824": "of size 589824",
    "Exception from src/inference/src/cpp/core.cpp:109:\nstd::bad_alloc\n": "std::bad_alloc",
    "Unable to allocate 3.64 TiB for an array with shape (1000000,)": "Unable to allocate 3.64 TiB",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_library_without_memory_is_told_apart(text: str):
    with pytest.raises(DeviceError, match="ran out of memory") as caught:
        check_memory(RuntimeError(text))
    assert TEXTS[text] in str(caught.value.got)
    check_memory(RuntimeError("Got invalid dimensions for input: x"))


def test_python_without_memory_is_no_bug():
    failure = explain(MemoryError("Unable to allocate 3.64 TiB"))
    assert failure.exit_code == DeviceError.exit_code
    assert "ran out of memory" in failure.text


def test_a_model_that_makes_more_than_there_is_says_so():
    huge = net("net (float[N] x, int64[1] n) => (float[M] y) { z = Expand(x, n) y = Relu(z) }")
    sizes = {"x": np.ones(1, np.float32), "n": np.array([1 << 50], np.int64)}
    dataset = open_dataset([sizes], huge.inputs)
    with pytest.raises(DeviceError, match="ran out of memory"):
        for batch in dataset.batches(1, 1):
            list(Taps(huge, ["z"], 1 << 20).run(batch.inputs, "sample 0"))
