"""Fixtures of the tests of what runs beside torch."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def nn(torch):
    return torch.nn
