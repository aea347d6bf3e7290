# SPDX-License-Identifier: Apache-2.0
"""Fixtures for every test: a seeded generator, the demo's files, larger real data where it is present."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
SEED = 20260101
FULL_COLLECTION = 50
"""How many collections of younger objects come before one of all; Python's own number is 10."""

MODULES = pytest.StashKey[int]()
"""How many were imported when garbage collections were last told to leave out what there is."""

MANY_MODULES = 50
"""Imported since then; torch is a thousand."""


settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--accept` rewrites the files of tests/golden from what is computed now."""
    parser.addoption("--accept", action="store_true", help="write what golden tests compute as the new truth")


def pytest_configure(config: pytest.Config) -> None:
    """Cores of its own for each worker of xdist: threads that wait for each other spin on shared ones.

    OpenBLAS starts its threads before a worker gets here, so it is told by the process that starts workers.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker:
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        os.sched_setaffinity(0, cores[int(worker) % len(cores) :: workers])
    elif workers := len(config.getoption("tx", None) or ()):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, len(cores) // workers)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pages of docs/ first: each is one test of minutes, for which at the end one process would wait."""
    pages = ROOT / "tests" / "docs"
    items.sort(key=lambda item: pages not in item.path.parents)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Full garbage collections leave out what was collected, half a million objects, and are seldom: they
    were a tenth of the time of tests."""
    _leave_out_all_there_is(session.config)
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """They leave out what tests have imported too: with torch alone one takes 0.1 s, and each timing on the
    host's clock begins with one."""
    if len(sys.modules) >= item.config.stash[MODULES] + MANY_MODULES:
        _leave_out_all_there_is(item.config)


def _leave_out_all_there_is(config: pytest.Config) -> None:
    gc.collect()
    gc.freeze()
    config.stash[MODULES] = len(sys.modules)


@pytest.fixture(autouse=True)
def restored_logger() -> Iterator[None]:
    """The command line sets up the logger of its process; here the process has other tests to run."""
    logger = logging.getLogger("quantrt")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts the same in every test, whatever ran before it."""
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def demo_dir() -> Path:
    """The folder with the trained digits model and its arrays."""
    return ROOT / "demo"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a file of the shared test data: `shared_data("models/kws_dscnn.onnx")`; skips without it.

    The data lie in $QUANTRT_TEST_DATA, or in shared/data beside the checkout.
    """
    folder = Path(os.environ.get("QUANTRT_TEST_DATA", ROOT.parent / "shared" / "data"))

    def path_of(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(
                f"shared test data '{name}' is not in {folder} (QUANTRT_TEST_DATA says where to look)"
            )
        return path

    return path_of
