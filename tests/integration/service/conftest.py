"""Databases for the tests of this folder, and a client of a server over each."""

import shutil

import pytest
from litestar.testing import TestClient

from perfguard.history.database import opened
from perfguard.service.app import create_app
from perfguard.service.shared import Settings
from tests.databases import database, postgresql_url, server, sqlite_url, url  # noqa: F401
from tests.served_histories import PROJECT, filled

_FILLED = "filled"


@pytest.fixture(scope="session")
def filled_sqlite(tmp_path_factory):
    """A file with a history, to be copied."""
    folder = tmp_path_factory.mktemp(_FILLED)
    with opened(f"sqlite:///{folder / _FILLED}", folder, upgrades=True) as found:
        filled(found)
    return folder / _FILLED


@pytest.fixture(scope="session")
def filled_postgresql(server, tmp_path_factory):  # noqa: F811
    """The name of a database with a history, to be copied."""
    with opened(server.new_database(_FILLED), tmp_path_factory.mktemp(_FILLED), upgrades=True) as found:
        filled(found)
    return _FILLED


@pytest.fixture(params=["sqlite", "postgresql"])
def history(request, tmp_path):
    """A database of a test's own that holds a history."""
    source = request.getfixturevalue(f"filled_{request.param}")
    if request.param == "sqlite":
        url = f"sqlite:///{shutil.copy(source, tmp_path / 'history.sqlite')}"
    else:
        url = request.getfixturevalue("server").new_database(f"copy_{tmp_path.name}", copy_of=source)
    with opened(url, tmp_path) as found:
        yield found


@pytest.fixture
def client(history):
    with TestClient(create_app(history, Settings(project=PROJECT)), base_url="http://perf.example") as found:
        yield found
