"""Op counts are a property of the code: two fresh workers count the same, whatever the machine does meanwhile.

Here the smallest case of each benchmark that runs in the worker; `make proof-op-counts` counts all of the catalogue.
"""

from __future__ import annotations

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.records.spec import Phase, expand
from perfguard.records.steps.ops import OpCountKind
from tests.counted_cases import count_cases, differences, is_countable

pytestmark = pytest.mark.torch


def smallest(spec):
    """The first values of all parameters but the phase, so that backward is counted, too, where there is one."""
    cases = expand(spec)
    return next((case for case in cases if case.phase is not Phase.FORWARD), cases[0])


pytestmark = pytest.mark.long
CASES = [case for case in map(smallest, BENCHMARKS) if is_countable(case)]


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    pytest.importorskip("torch")
    return [count_cases(CASES, tmp_path_factory.mktemp(name)) for name in ("first", "second")]


def test_two_fresh_workers_count_the_same_in_every_benchmark(counted):
    first, second = counted
    assert first.problems == second.problems == {}
    assert first.op_counts.keys() == second.op_counts.keys() == {case.id for case in CASES}
    found = {case_id: differences(counts, second.op_counts[case_id]) for case_id, counts in first.op_counts.items()}
    assert {case_id: told for case_id, told in found.items() if told} == {}


def test_every_benchmark_has_ops_and_allocations_to_count(counted):
    for case_id, counts in counted[0].op_counts.items():
        kinds = {row.kind for row in counts.rows}
        assert OpCountKind.OP in kinds, case_id
        assert all(row.count > 0 for row in counts.rows), case_id
    rows = [row for counts in counted[0].op_counts.values() for row in counts.rows]
    assert {OpCountKind.OP, OpCountKind.PRIMITIVE, OpCountKind.ALLOCATION} <= {row.kind for row in rows}
