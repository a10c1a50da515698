"""The API under requests made from its own schema, the wildest ones included."""

from __future__ import annotations

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from perfguard.history.database import opened
from perfguard.service import app as served
from perfguard.service.app import Settings, create_app
from tests.served_histories import PROJECT, filled

REQUESTS = int(os.environ.get("PERFGUARD_FUZZED_REQUESTS", "40"))  # Of each operation; `make fuzz-api` makes ten thousand


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patch, opened(f"sqlite:///{folder / 'history.sqlite'}", folder) as database:
        patch.setattr(served, "_PER_MINUTE", 10**9)
        found = create_app(filled(database, runs=8), Settings(project=PROJECT))
        yield schemathesis.openapi.from_asgi("/api/openapi.json", found)


lazy = schemathesis.pytest.from_fixture("schema")


@lazy.parametrize()
@settings(
    max_examples=REQUESTS, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_no_request_is_answered_by_a_failure_of_the_server(case):
    answer = case.call()
    assert answer.status_code < 500, answer.text
