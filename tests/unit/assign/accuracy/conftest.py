# SPDX-License-Identifier: Apache-2.0
import sys
import types

import pytest


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An importable module `metrics_of_a_user`."""
    module = types.ModuleType("metrics_of_a_user")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module
