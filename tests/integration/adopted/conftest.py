"""A tree for a suite of another tool."""

from __future__ import annotations

import pytest

from tests.adopted_suites import AdoptedSuite


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Without the plugins that are installed here, which take a second of each process that runs pytest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return AdoptedSuite(tmp_path)
