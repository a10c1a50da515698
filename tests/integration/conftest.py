"""Fixtures of the tests that start real workers."""

from __future__ import annotations

import pytest

from tests.worker_rigs import SETTINGS, Rig


@pytest.fixture
def rig(tmp_path):
    """Makes a rig; whatever a test leaves running there is ended."""
    rigs = []

    def make(source, settings=SETTINGS):
        rigs.append(Rig(tmp_path, source, settings))
        return rigs[-1]

    yield make
    for made in rigs:
        made.starter.close()
        for process in made.survivors():
            process.kill()
