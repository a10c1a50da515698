"""Databases for the tests of this folder, and a client of a server over each."""

import pytest
from litestar.testing import TestClient

from perfguard.service.app import create_app
from perfguard.service.shared import Settings
from tests.databases import database, postgresql_url, server, sqlite_url, url  # noqa: F401
from tests.served_histories import PROJECT, filled


@pytest.fixture
def client(database):  # noqa: F811
    with TestClient(create_app(filled(database), Settings(project=PROJECT)), base_url="http://perf.example") as found:
        yield found
