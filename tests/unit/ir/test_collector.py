# SPDX-License-Identifier: Apache-2.0
"""The collector of cycles is put off, and goes on as before."""

import gc
import weakref

import pytest

from quantrt.ir import collector
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


@pytest.fixture
def _nothing_frozen():
    """Other tests go on with what was frozen before them."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("_nothing_frozen")
def test_what_was_made_meanwhile_is_looked_at_by_a_full_collection_alone():
    gc.enable()
    with without_collector():
        made = [[number] for number in range(10_000)]
    assert not any(one is made for one in gc.get_objects(0))
    assert any(one is made for one in gc.get_objects(2))
    cycle = [_Watched()]
    cycle[0].held = cycle
    gone = weakref.ref(cycle[0])
    with without_collector():
        del cycle
        made += [[number] for number in range(10_000)]
    gc.collect(1)
    assert gone() is not None
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("_nothing_frozen")
def test_what_others_have_frozen_stays_so():
    gc.enable()
    made = [[number] for number in range(10_000)]
    gc.freeze()
    with without_collector():
        made += [[number] for number in range(10_000)]
    assert gc.get_freeze_count() > 10_000 > collector.FROZEN
    gc.unfreeze()
    with without_collector():
        made += [[number] for number in range(10_000)]
    assert gc.get_freeze_count() == 0


def test_what_is_frozen_is_not_counted_for_little(monkeypatch: pytest.MonkeyPatch):
    """To count takes as long as there are objects: of servers, and of tests, all that they have imported."""
    monkeypatch.setattr(collector, "FROZEN", -1)
    counted = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(True) or 0)
    gc.enable()
    gc.collect()
    with without_collector():
        few = [[number] for number in range(1000)]
    assert not counted
    with without_collector():
        many = [[number] for number in range(10_000)]
    assert counted
    assert len(few) < collector.FEW < len(many)


class _Watched:
    held: object = None
