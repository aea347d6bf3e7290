# SPDX-License-Identifier: Apache-2.0
"""Prepared modules, made once for each process: tracing takes seconds."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript: pip install 'quantrt[qat]'")

from quantrt.torch.qat import prepare  # noqa: E402
from tests.unit.torch.qat import nets  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks gain nothing by more, and other tests run beside them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def made():
    """`made(kind, target)`: a copy of a prepared module."""
    kept = {}

    def make(kind, target):
        if (kind, target) not in kept:
            net = nets.resnet() if kind == "resnet" else nets.transformer()
            inputs = nets.images if kind == "resnet" else nets.ids
            kept[kind, target] = prepare(net, inputs(4, 2), [inputs(16, 3)], target=target)
        with warnings.catch_warnings():  # torch copies its own pytrees through a deprecated class
            warnings.filterwarnings("ignore", "`isinstance.treespec", FutureWarning)
            return copy.deepcopy(kept[kind, target])

    return make
