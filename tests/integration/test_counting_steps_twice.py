"""A census is a property of the code: two fresh workers count the same, whatever the machine does meanwhile.

Here the smallest case of each benchmark; `make proof-census` counts all of the catalogue.
"""

from __future__ import annotations

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.records.spec import Phase, expand
from perfguard.records.steps.ops import CensusKind
from tests.counted_cases import count_cases, differences

pytestmark = pytest.mark.torch


def smallest(spec):
    """The first values of all parameters but the phase, so that backward is counted, too."""
    cases = [case for case in expand(spec) if case.phase in (Phase.FORWARD_BACKWARD, Phase.STEP, Phase.OPTIMIZER)]
    return cases[0]


CASES = [smallest(spec) for spec in BENCHMARKS]


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    pytest.importorskip("torch")
    return [count_cases(CASES, tmp_path_factory.mktemp(name)) for name in ("first", "second")]


def test_two_fresh_workers_count_the_same_in_every_benchmark(counted):
    first, second = counted
    assert first.problems == second.problems == {}
    assert first.censuses.keys() == second.censuses.keys() == {case.id for case in CASES}
    found = {case_id: differences(census, second.censuses[case_id]) for case_id, census in first.censuses.items()}
    assert {case_id: told for case_id, told in found.items() if told} == {}


def test_every_benchmark_has_ops_and_allocations_to_count(counted):
    for case_id, census in counted[0].censuses.items():
        kinds = {row.kind for row in census.rows}
        assert CensusKind.OP in kinds, case_id
        assert all(row.count > 0 for row in census.rows), case_id
    rows = [row for census in counted[0].censuses.values() for row in census.rows]
    assert {CensusKind.OP, CensusKind.PRIMITIVE, CensusKind.ALLOCATION} <= {row.kind for row in rows}
