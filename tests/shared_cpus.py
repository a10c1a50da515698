"""What processes of tests share: the CPUs, of which tests that time things get one for themselves, and compiled code.

A plugin of pytest, which tests/conftest.py registers.
"""

from __future__ import annotations

import compileall
import contextlib
import functools
import gc
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import perfguard
from perfguard.host.placement import select_cpus
from perfguard.host.probe import probe

MEASURING = "tests/measuring/"
"""The folder of tests whose answers hang on times: they follow each other, with a CPU that nothing else is on."""
SHARED = "FOLDER_OF_TEST_PROCESSES"
"""The variable that names a folder in which one process tells the others that all is measured."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share out files among processes, and all that hangs on times to one of them.

    `--dist loadgroup` would do, but pytest-xdist 3.8 with pytest 9.2 does not see the groups.
    """
    from xdist.scheduler import LoadScopeScheduling

    class MeasuringInOneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "measuring" if nodeid.startswith(MEASURING) else nodeid.partition("::")[0]

    return MeasuringInOneProcess(config, log)


_COVERING = (
    "tests/unit/gate/",
    "tests/unit/stats/",
    "tests/unit/worker/",
    "tests/e2e/test_showing_runs.py",
    "tests/measuring/test_allow_command.py",
    "tests/measuring/test_baselines_of_projects.py",
    "tests/measuring/test_comparing_trees.py",
    "tests/measuring/test_drifting_from_an_anchor.py",
)
"""Tests whose coverage is measured: others run hardly anything of `gate` and `stats` beside, and longer if traced."""
_TRACED = "COVERAGE_PROCESS_CONFIG"
"""What makes each Python process of a test measure its coverage, too."""


def pytest_sessionstart(session):
    """Compile perfguard once: the processes that tests start write no byte code, and would compile it each time."""
    if not _is_worker(session.config):
        compileall.compile_dir(Path(perfguard.__file__).parent, quiet=2)
        os.environ[SHARED] = tempfile.mkdtemp()
    # Nothing that runs in a test's own process comes near the user's history.
    os.environ["XDG_DATA_HOME"] = f"{os.environ[SHARED]}/{os.getpid()}"


def pytest_sessionfinish(session):
    """Remove what the processes of the session shared."""
    if not _is_worker(session.config):
        shutil.rmtree(os.environ.pop(SHARED), ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Begin with what measures, the longest chain."""
    items.sort(key=lambda item: not item.nodeid.startswith(MEASURING))


def pytest_collection_finish():
    """Freeze what is imported: torch and the tests are half a million objects, which each collection looks through."""
    gc.collect()
    gc.freeze()


@functools.cache
def _measured(available):
    return select_cpus(probe(), cpus=None, threads=None, numa=None, available=available).cpus


def _is_worker(config):
    return hasattr(config, "workerinput")


def _will_measure(session):
    if _WILL_MEASURE not in session.stash:
        session.stash[_WILL_MEASURE] = any(item.nodeid.startswith(MEASURING) for item in session.items)
    return session.stash[_WILL_MEASURE]


_WILL_MEASURE = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Give tests that measure, the longest chain, CPUs of their own until they are done, and all others the rest."""
    everywhere, is_measured = os.sched_getaffinity(0), Path(os.environ[SHARED], "measured")
    measures = item.nodeid.startswith(MEASURING)
    if item.get_closest_marker("two_cpus") is None and _is_worker(item.config) and not is_measured.exists():
        measured = set(_measured(frozenset(everywhere))) if _will_measure(item.session) else set()
        os.sched_setaffinity(0, measured if measures else everywhere - measured or everywhere)
    _fit_threads()
    try:
        with contextlib.nullcontext() if item.nodeid.startswith(_COVERING) else _untraced():
            return (yield)
    finally:
        os.sched_setaffinity(0, everywhere)
        if measures and (nextitem is None or not nextitem.nodeid.startswith(MEASURING)):
            is_measured.touch()


@contextlib.contextmanager
def _untraced():
    """Measure no coverage while entered, in this process and those that it starts.

    The marker `no_cover` does not do it: a worker of pytest-xdist has two measurements by pytest-cov 7, and the marker
    stops one of them. Tests that compute took four times as long.
    """
    own, of_threads, of_processes = sys.gettrace(), threading.gettrace(), os.environ.pop(_TRACED, None)
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        if of_processes is not None:
            os.environ[_TRACED] = of_processes
        threading.settrace(of_threads)
        sys.settrace(own)


def _fit_threads():
    """Give torch one thread, where this process has imported it: of several, all but one would wait and spin.

    Three processes test on two CPUs; a training step took five times its CPU time.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
