"""Databases for the tests of this folder."""

from tests.databases import database, other_url, postgresql_url, server, sqlite_url, url  # noqa: F401
