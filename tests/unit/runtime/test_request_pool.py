# SPDX-License-Identifier: Apache-2.0
"""A pool hands each thing to one thread at a time, and makes no more than it may."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from quantrt.runtime.request_pool import RequestPool


def test_nothing_is_made_before_it_is_needed_and_idle_ones_are_used_again():
    pool = RequestPool(object, 3)
    assert pool.made == 0
    first = pool.take()
    pool.give(first)
    assert pool.take() is first
    assert pool.made == 1


def test_threads_share_no_request():
    pool = RequestPool(threading.Lock, 3)

    def use(_: int) -> bool:
        lock = pool.take()
        is_alone = lock.acquire(blocking=False)
        if is_alone:
            lock.release()
        pool.give(lock)
        return is_alone

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(4000)))
    assert 1 <= pool.made <= 3


def test_a_failed_making_leaves_its_place_free():
    attempts = []

    def make() -> object:
        attempts.append(1)
        if len(attempts) == 1:
            raise MemoryError
        return object()

    pool = RequestPool(make, 1)
    with pytest.raises(MemoryError):
        pool.take()
    assert pool.take() is not None
