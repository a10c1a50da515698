"""Fixtures of the bisections: a repository, a gate that reads it, and the request."""

from __future__ import annotations

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.runner.session import Request
from tests.bisected_histories import SUM, FakeGate, Repository
from tests.git_repositories import init_repository


@pytest.fixture
def repository(tmp_path, monkeypatch):
    return Repository(init_repository(tmp_path / "repository", monkeypatch, author="Ada Müller"))


@pytest.fixture
def gate(repository):
    return FakeGate(repository)


@pytest.fixture
def wanted(repository):
    loaded = LoadedConfig(config=Config(), origins={}, project=repository.path)
    return Request(
        command="bisect", arguments=(), loaded=loaded, suite="tiny.*", cases=(SUM,), budget_s=60.0, inherited={}
    )
