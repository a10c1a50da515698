"""A local stand-in for GitHub, and a clock whose pauses take no time."""

from __future__ import annotations

import time

import pytest

from perfguard.integrations.github.api import GitHub
from tests.fake_github import REPOSITORY, FakeGitHub


@pytest.fixture
def hub(httpserver):
    return FakeGitHub(httpserver)


@pytest.fixture
def connect():
    """Makes clients of a stand-in, and closes them."""
    made = []

    def client(hub: FakeGitHub, **fields) -> GitHub:
        made.append(
            GitHub(**{"repository": REPOSITORY, "token": "ghs_secret", "url": hub.url, "wait_s": 0.01, **fields})
        )
        return made[-1]

    yield client
    for github in made:
        github.close()


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that anything would have slept."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept
