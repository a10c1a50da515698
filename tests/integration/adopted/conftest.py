"""A tree for a suite of another tool."""

from __future__ import annotations

import pytest

from tests.adopted_suites import AdoptedSuite


@pytest.fixture
def suite(tmp_path):
    return AdoptedSuite(tmp_path)
