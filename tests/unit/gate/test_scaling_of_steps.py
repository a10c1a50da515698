"""Throughput over ranks and threads: from the times of cases to the printed table."""

from __future__ import annotations

import pytest

from perfguard.gate.paired.scaling import scaling_of
from perfguard.records.facts import fact
from perfguard.records.result import CaseMeasured
from perfguard.report.scaling import scaling_tables


def measured(options, median_s, step="step.bert[batch=4"):
    problem = None if median_s else fact("case.raised", error="broken")
    return CaseMeasured(
        case_id=f"{step}{options}]",
        rounds=2,
        median_s=median_s,
        between_sd_ratio=None,
        within_sd_ratio=None,
        inner_loops=1,
        problem=problem,
    )


CELLS = [
    measured(",threads=2", 0.025),
    measured(",threads=1,ranks=2,parallel=plain", 0.05),
    measured(",threads=1,ranks=2", 0.08),
    measured(",threads=1", 0.04),
]


def test_throughput_is_of_all_ranks_and_normalised_to_the_first_cell():
    cells = scaling_of(CELLS, cpus=2)
    assert [(cell.threads, cell.ranks, cell.parallel) for cell in cells] == [
        (1, 1, None),
        (1, 2, "ddp"),
        (1, 2, "plain"),
        (2, 1, None),
    ]
    assert [cell.examples_per_s for cell in cells] == pytest.approx([100, 100, 160, 160])
    assert [cell.throughput_ratio for cell in cells] == pytest.approx([1, 1, 1.6, 1.6])
    assert {cell.step for cell in cells} == {"step.bert[batch=4]"}


def test_all_threads_are_the_share_of_the_cpus():
    cells = scaling_of([measured("", 0.04), measured(",ranks=2", 0.05)], cpus=4)
    assert [(cell.threads, cell.ranks) for cell in cells] == [(2, 2), (4, 1)]


def test_a_step_measured_once_and_cases_without_examples_make_no_table():
    others = [measured("", 0.01, step="kernel.copy[rows=4"), measured(",ranks=2", 0.01, step="kernel.copy[rows=4")]
    assert scaling_of([*others, CELLS[0]], cpus=2) == ()


def test_parameters_of_a_users_benchmark_mean_what_its_author_wants():
    lora = [measured(options, 0.01, step="mine.lora[batch=8") for options in ("", ",ranks=4", ",threads=auto")]
    assert scaling_of([*lora, measured("", 0.01, step="mine.net[batch=small")], cpus=2) == ()


@pytest.mark.parametrize("failed", [1, 3])
def test_a_failed_case_leaves_what_it_should_have_said_empty(failed):
    cases = list(CELLS)
    cases[failed] = measured(cases[failed].case_id.removeprefix("step.bert[batch=4")[:-1], None)
    ratios = [cell.throughput_ratio for cell in scaling_of(cases, cpus=2)]
    expected = [1, 1, None, pytest.approx(1.6)] if failed == 1 else [None] * 4
    assert ratios == expected


def test_a_table_has_a_row_for_each_number_of_threads_and_kind_of_ranks():
    (table,) = scaling_tables(scaling_of(CELLS, cpus=2))
    assert len(table.heads) == 4
    assert table.rows == (
        ("1", "ddp", "1.00", "1.00"),
        ("1", "plain", "1.00", "1.60"),
        ("2", "ddp", "1.60", "-"),
        ("2", "plain", "1.60", "-"),
    )


def test_each_step_has_its_own_table_and_first_cell():
    other = [
        measured(",threads=1", 0.5, "step.lstm_lm[batch=16"),
        measured(",threads=2", 0.25, "step.lstm_lm[batch=16"),
    ]
    cells = scaling_of([*CELLS, *other], cpus=2)
    tables = scaling_tables(cells)
    assert len(tables) == 2
    assert tables[1].rows == (("1", "", "1.00"), ("2", "", "2.00"))
