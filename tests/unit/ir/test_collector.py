# SPDX-License-Identifier: Apache-2.0
"""The collector of cycles is put off, and goes on as before."""

import gc

import pytest

from quantrt.ir.collector import without_collector


@pytest.fixture(autouse=True)
def _as_before():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_off_meanwhile_and_as_before_afterwards(is_on):
    (gc.enable if is_on else gc.disable)()

    @without_collector()
    def state() -> bool:
        return gc.isenabled()

    assert not state()
    assert gc.isenabled() == is_on
    with pytest.raises(ValueError, match="whatever"), without_collector():
        raise ValueError("whatever")
    assert gc.isenabled() == is_on
