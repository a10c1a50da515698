"""The API under requests made from its own schema, the wildest ones included."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from perfguard.history.database import opened
from perfguard.service.app import create_app
from perfguard.service.shared import Settings
from tests.served_histories import PROJECT, filled

schemathesis = pytest.importorskip("schemathesis")  # it needs Python 3.11

REQUESTS = int(
    os.environ.get("PERFGUARD_FUZZED_REQUESTS", "40")
)  # Of each operation; `make fuzz-api` makes ten thousand


@pytest.fixture
def schema(tmp_path):
    with opened(f"sqlite:///{tmp_path / 'history.sqlite'}", tmp_path) as database:
        app = create_app(filled(database, runs=8), Settings(project=PROJECT, per_minute=10**9))
        yield schemathesis.openapi.from_asgi("/api/openapi.json", app)
        app.state.service.changes.close()


def test_no_request_is_answered_by_a_failure_of_the_server(schema):
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 10
    sent = [asked(operation, mode) for operation in operations for mode in modes_of(operation)]
    assert sum(sent) > REQUESTS * len(operations)


def modes_of(operation):
    """Requests that the schema allows, and, where there is something to get wrong, some that it does not."""
    return (
        list(schemathesis.GenerationMode)
        if list(operation.query) or operation.body
        else [schemathesis.GenerationMode.POSITIVE]
    )


def asked(operation, mode):
    """Ask an operation with requests of a kind; how many there were."""
    sent = 0

    @settings(
        max_examples=REQUESTS, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        nonlocal sent
        answer = case.call()
        sent += 1
        assert answer.status_code < 500, (operation.label, answer.text)

    ask()
    return sent
