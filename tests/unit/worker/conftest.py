"""Fixtures of the tests of what runs beside torch."""

from __future__ import annotations

import sys
import threading

import pytest


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def nn(torch):
    return torch.nn


@pytest.fixture(autouse=True)
def _without_another_tracer():
    """A debugger's or coverage's tracer would take the place of the one under test."""
    here, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    threading.settrace(in_threads)
    sys.settrace(here)
