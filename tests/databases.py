"""Fixtures: databases of both kinds, each empty and a test's own."""

from __future__ import annotations

import itertools

import pytest

from perfguard.history.database import opened
from tests import postgresql_servers

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, for all tests of a process."""
    if postgresql_servers.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    made = postgresql_servers.started()
    yield made
    made.stop()


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.sqlite'}"


@pytest.fixture
def postgresql_url(server):
    return server.new_database(f"history_{next(_NUMBERS)}")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def other_url(request, url, tmp_path):
    """A database of the other kind."""
    if url.startswith("sqlite"):
        return request.getfixturevalue("postgresql_url")
    return f"sqlite:///{tmp_path / 'other.sqlite'}"


@pytest.fixture
def database(url, tmp_path):
    with opened(url, tmp_path, upgrades=True) as found:
        yield found
