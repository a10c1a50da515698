"""One contract for SQLite and PostgreSQL: what was recorded is there, once, and whole."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import inspect, text, update

from perfguard.config import load_config
from perfguard.errors import DatabaseError, DatabaseVersionError, NothingSelectedError
from perfguard.history.changes import ChangeState, cases_on_machines, change_points_of
from perfguard.history.database import Database, known_revisions, migrate, opened, revision_of
from perfguard.history.pairs import read_pairs
from perfguard.history.queries import find_run, read_case_ids, read_log, read_points, read_run, read_samples
from perfguard.history.recording import add_run, drop_samples
from perfguard.history.revisions import compare_revisions
from perfguard.history.slips import read_slips
from perfguard.history.states import read_states, state_change
from perfguard.history.tables import REVISION, metadata, runs, values
from perfguard.history.upkeep import back_up, copy_all, export_values, status_of, verify
from perfguard.records.facts import Severity, fact
from tests.changed_values import replace
from tests.recorded_histories import CASES, COMMITS, PROJECT, SAMPLES, a_gate, a_run, code


def row_of(database, run):
    return find_run(database, run.project, run.run_id)


@pytest.mark.parametrize(
    "run",
    [
        a_run(1),
        a_gate(1, 2, 0.05),
        a_run(1, machine_id=None, outcome=None, exit_code=None, candidate=code(1, commit=None, stack_id=None)),
        a_run(1, cases=(), problem=fact("recording.no_start", severity=Severity.NOTABLE)),
    ],
    ids=["rounds", "paired", "killed", "unreadable"],
)
def test_a_run_is_read_as_it_was_recorded(database, run):
    assert add_run(database, run) is True
    assert read_run(database, row_of(database, run)) == run
    assert verify(database).damages == ()


def test_a_run_is_recorded_once(database):
    assert [add_run(database, a_run(1)) for _ in range(3)] == [True, False, False]
    found = status_of(database)
    assert (found.runs, found.values, found.series) == (1, len(CASES), len(CASES))


def test_a_run_that_is_read_anew_corrects_what_was_recorded(database):
    first, again = a_run(1, outcome=None, median_s=0.01), a_run(1, median_s=0.02)
    for run in (first, again):
        add_run(database, run)
    assert [point.median_s for point in read_points(database, PROJECT, case_ids=[CASES[0]])] == [0.02]
    assert read_run(database, row_of(database, again)) == again
    assert status_of(database).corrected_runs == 1


def test_points_come_in_the_order_of_time_and_the_newest_are_had_alone(database):
    for number in (3, 1, 2):
        add_run(database, a_run(number))
    found = read_points(database, PROJECT, case_ids=[CASES[0]])
    assert [point.commit for point in found] == [COMMITS[1], COMMITS[2], COMMITS[3]]
    newest = read_points(database, PROJECT, last=1)
    assert [(point.case_id, point.commit) for point in newest] == [(case_id, COMMITS[3]) for case_id in CASES]
    assert (found[0].machine_id, found[0].stack_id, found[0].blocks) == ("machine", "torch-2.13", 7)


def test_projects_know_nothing_of_each_other(database):
    add_run(database, a_run(1))
    add_run(database, a_run(2, project="other/nets"))
    assert [run.run.run_id for run in read_log(database, PROJECT, last=9)] == [a_run(1).run_id]
    assert {point.commit for point in read_points(database, "other/nets")} == {COMMITS[2]}
    assert read_case_ids(database, "third/nets") == ()
    with pytest.raises(NothingSelectedError):
        find_run(database, PROJECT, a_run(2).run_id)


def test_samples_are_kept_until_they_are_old(database):
    add_run(database, a_run(1), samples=SAMPLES)
    add_run(database, a_run(2, started_at=time.time()), samples=SAMPLES)
    assert read_samples(database, row_of(database, a_run(1))) == SAMPLES
    assert drop_samples(database, older_than_s=3600.0) == 1
    assert read_samples(database, row_of(database, a_run(1))) == {}
    assert read_samples(database, row_of(database, a_run(2))) == SAMPLES
    assert status_of(database).values == 2 * len(CASES)


@pytest.mark.parametrize(
    ("table", "change"), [(values, {"median_s": 0.5}), (runs, {"commit": "f" * 40}), (values, {"spread_ppm": None})]
)
def test_a_changed_value_is_found(database, table, change):
    add_run(database, a_run(1))
    assert verify(database).damages == ()
    with database.writing() as connection:
        connection.execute(update(table).values(**change))
    (damage,) = verify(database).damages
    assert a_run(1).run_id in damage


def test_a_revision_is_compared_by_runs_that_measured_both(database):
    add_run(database, a_run(1, median_s=0.01))
    add_run(database, a_gate(1, 2, 0.05))
    found = {case.case_id: case for case in compare_revisions(database, PROJECT, COMMITS[1], COMMITS[2]).cases}
    assert found[CASES[0]].paired_runs == 1
    assert found[CASES[0]].log_ratio == pytest.approx(0.05)
    assert (found[CASES[0]].lower, found[CASES[0]].upper) == (pytest.approx(0.04), pytest.approx(0.06))


def test_without_such_a_run_the_runs_of_each_are_compared(database):
    for number, median_s in enumerate((0.0100, 0.0101, 0.0102, 0.0111, 0.0112, 0.0113)):
        add_run(database, a_run(number, median_s=median_s, candidate=code(1 if number < 3 else 2)))
    add_run(database, a_run(9, median_s=0.5, candidate=code(2, source_id="f" * 40 + "+changed")))
    found = compare_revisions(database, PROJECT, COMMITS[1], COMMITS[2]).cases
    assert {case.case_id for case in found} == set(CASES)
    assert found[0].log_ratio == pytest.approx(0.1035, abs=1e-3)
    assert 0.08 < found[0].lower < found[0].log_ratio < found[0].upper < 0.13
    assert (found[0].before_runs, found[0].after_runs, found[0].paired_runs) == (3, 3, 0)


def test_one_run_of_a_revision_gives_no_interval(database):
    for number in (1, 2):
        add_run(database, a_run(number, median_s=0.01 * number))
    (first, _) = compare_revisions(database, PROJECT, COMMITS[1], COMMITS[2]).cases
    assert (first.log_ratio, first.lower) == (pytest.approx(0.6931, abs=1e-3), None)
    assert compare_revisions(database, PROJECT, COMMITS[1], COMMITS[3]).cases == ()


def test_effects_of_commits_come_from_runs_of_two_commits_and_the_same_software(database):
    for before, after in ((1, 2), (2, 3)):
        add_run(database, a_gate(before, after, 0.01 * after))
    add_run(database, a_run(4))
    add_run(database, a_gate(4, 5, 0.5, machine_id="another"))
    add_run(database, replace(a_gate(5, 6, 0.5), candidate=code(6, stack_id="torch-2.14")))
    add_run(database, replace(a_gate(6, 7, 0.5), candidate=code(7, source_id="f" * 40 + "+changed")))
    add_run(database, replace(a_gate(8, 9, 0.5), baseline=code(8, commit=COMMITS[9])))
    found = read_pairs(database, PROJECT, "machine", [CASES[0]], last=10)
    assert [(pair.case_id, pair.baseline_commit, pair.commit) for pair in found] == [
        (CASES[0], COMMITS[1], COMMITS[2]),
        (CASES[0], COMMITS[2], COMMITS[3]),
    ]
    assert [pair.log_ratio for pair in found] == [pytest.approx(0.02), pytest.approx(0.03)]
    assert (found[1].lower, found[1].upper) == (pytest.approx(0.02), pytest.approx(0.04))
    assert (
        read_pairs(database, PROJECT, "machine", CASES, last=1)
        == read_pairs(database, PROJECT, "machine", CASES, last=10)[-2:]
    )


def test_a_gate_is_given_the_slips_of_its_cases(database, url, tmp_path):
    for after in range(1, 11):
        add_run(database, a_gate(after - 1, after, 0.02))
    settings = {"PERFGUARD_DATABASE": url, "PERFGUARD_PROJECT": PROJECT}
    (found,) = read_slips(load_config(tmp_path, settings, {}), "machine", [CASES[0], "step.other"])
    assert (found.code, found.subject.case_id) == ("history.slipped_in_pairs", CASES[0])
    assert found.values["log_ratio"] == pytest.approx(0.2)
    assert (found.values["commits"], found.values["since"]) == (10, COMMITS[0][:12])
    assert read_slips(load_config(tmp_path, settings, {}), "another", CASES) == ()


def test_a_regression_on_one_machine_only_is_said_so(database):
    for machine, log_ratio in (("intel", 0.10), ("amd-a", 0.0), ("amd-b", 0.001)):
        add_run(database, replace(a_gate(1, 2, log_ratio), machine_id=machine, run_id=f"gate-on-{machine}"))
    found = compare_revisions(database, PROJECT, COMMITS[1], COMMITS[2]).over_machines
    assert {case.case_id for case in found} == set(CASES)
    assert (found[0].differ, found[0].slower_on) == (True, ("intel",))
    assert found[0].lower < 0.034 < found[0].upper
    assert set(found[0].machines) == {"intel", "amd-a", "amd-b"}


def test_machines_that_agree_narrow_the_interval(database):
    for machine in "abcdefgh":
        add_run(database, replace(a_gate(1, 2, 0.05), machine_id=machine, run_id=f"gate-on-{machine}"))
    (case, _) = compare_revisions(database, PROJECT, COMMITS[1], COMMITS[2]).over_machines
    assert (case.differ, len(case.slower_on)) == (False, 8)
    assert 0.045 < case.lower < 0.05 < case.upper < 0.055


def with_a_change(database):
    """A series whose level rises by a tenth at run 12."""
    for number in range(24):
        noise = 1 + 0.001 * ((number * 7) % 5)
        add_run(database, a_run(number, median_s=0.01 * noise * (1.1 if number >= 12 else 1.0)))
    (case,) = cases_on_machines(read_points(database, PROJECT, case_ids=[CASES[0]]))
    return case.points, case.changes[0]


def test_what_is_said_of_a_change_stays_with_who_and_why(database):
    points, change = with_a_change(database)
    for state, reason in ((ChangeState.ACKNOWLEDGED, "known"), (ChangeState.NOISE, "a neighbour")):
        state_change(database, PROJECT, change, state, author="A <a@b>", reason=reason)
    stated = read_states(database, PROJECT)[CASES[0], "machine"]
    assert [each.state for each in stated] == [ChangeState.ACKNOWLEDGED, ChangeState.NOISE]
    (found,) = change_points_of(points, stated)
    assert (found.state, found.stated.author, found.stated.reason) == (ChangeState.NOISE, "A <a@b>", "a neighbour")


def test_everything_moves_to_the_other_kind_of_database_and_what_is_there_is_passed_over(database, other_url, tmp_path):
    _, change = with_a_change(database)
    add_run(database, a_gate(1, 2, 0.05), samples=SAMPLES)
    add_run(database, replace(a_run(3), outcome=None))
    state_change(database, PROJECT, change, ChangeState.FIXED, author="A", reason="reverted")
    with opened(other_url, tmp_path, upgrades=True) as other:
        first, again = copy_all(database, other), copy_all(database, other)
        assert (first.added, first.known, first.states) == (25, 0, 1)
        assert (again.added, again.known, again.states) == (0, 25, 0)
        assert verify(other).damages == ()
        assert read_points(other, PROJECT) == read_points(database, PROJECT)
        assert read_states(other, PROJECT) == read_states(database, PROJECT)
        row = row_of(other, a_gate(1, 2, 0.05))
        assert read_samples(other, row) == SAMPLES


def test_a_backup_is_one_file_that_holds_everything(database, tmp_path):
    with_a_change(database)
    file = tmp_path / "backup.sqlite"
    assert back_up(database, file).added == 24
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.sqlite"]
    with opened(str(file), tmp_path) as copy:
        assert read_points(copy, PROJECT) == read_points(database, PROJECT)
        assert verify(copy).damages == ()


def test_values_are_exported_with_what_they_were_measured_on(database, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    add_run(database, a_run(1))
    add_run(database, a_gate(1, 2, 0.05))
    add_run(database, a_run(5, project="other"))
    file = tmp_path / "values.parquet"
    assert export_values(database, file, project=PROJECT) == 2 * len(CASES)
    rows = pq.read_table(file).to_pylist()
    assert {(row["case_id"], row["commit"], row["outcome"]) for row in rows} == {
        (case_id, COMMITS[number], outcome) for case_id in CASES for number, outcome in ((1, None), (2, "regressed"))
    }
    assert rows[0]["median_s"] == 0.01
    assert rows[0]["started_at"].timestamp() == a_run(1).started_at


def shape(database: Database):
    """Tables with their columns, keys and indexes, without the order of them."""
    with database.engine.connect() as connection:
        found = inspect(connection)
        return {
            table: (
                sorted(
                    (column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(table)
                ),
                found.get_pk_constraint(table)["constrained_columns"],
                sorted((index["name"] or "", tuple(index["column_names"])) for index in found.get_indexes(table)),
                sorted(tuple(key["constrained_columns"]) for key in found.get_foreign_keys(table)),
            )
            for table in metadata.tables
        }


def test_migrations_make_the_tables_that_new_databases_have(database):
    new = shape(database)
    migrate(database, "base")
    assert not inspect(database.engine).has_table("runs")
    migrate(database, REVISION)
    assert shape(database) == new
    assert known_revisions()[0] == REVISION


def test_data_survive_all_migrations_up_and_down(database):
    for number in range(5):
        add_run(database, a_run(number), samples=SAMPLES)
    points = read_points(database, PROJECT)
    for revision in (*known_revisions()[1:], *reversed(known_revisions())):
        migrate(database, revision)
        assert revision_of(database) == revision
    assert read_points(database, PROJECT) == points
    assert verify(database).damages == ()


def test_tables_of_another_version_are_refused(url, tmp_path):
    with opened(url, tmp_path, upgrades=True) as database, database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseVersionError, match="9999"), opened(url, tmp_path):
        pass


def test_only_a_file_is_upgraded_without_being_asked(url, tmp_path):
    with opened(url, tmp_path, upgrades=True) as database:
        add_run(database, a_run(1))
        migrate(database, "0001")
    if url.startswith("sqlite"):
        with opened(url, tmp_path) as database:
            assert (revision_of(database), status_of(database).runs) == (REVISION, 1)
    else:
        with pytest.raises(DatabaseVersionError, match="perfguard db upgrade"), opened(url, tmp_path):
            pass


def test_a_run_that_cannot_be_added_whole_is_not_added(database):
    run = a_run(1)
    broken = replace(run, cases=(*run.cases, run.cases[0]))  # two values of one case
    with pytest.raises(DatabaseError):
        add_run(database, broken)
    assert (status_of(database).runs, status_of(database).values, status_of(database).series) == (0, 0, 0)
    assert add_run(database, run) is True
