"""The register of hosts, and work that comes again, on both databases."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time

import pytest

from perfguard.cli.output import plain_text
from perfguard.errors import ArmError, NothingSelectedError, UsageError
from perfguard.fleet import working
from perfguard.fleet.hosts import (
    fitness_of,
    heed_canary,
    note_waiting,
    read_hosts,
    register,
    remove_host,
    state_fitness,
)
from perfguard.fleet.overview import read_status
from perfguard.fleet.schedules import next_time, read_schedules, remove_schedule, save_schedule, submit_due, tip_of
from perfguard.fleet.shards import claim
from perfguard.fleet.working import take
from perfguard.host.lock import host_lock
from perfguard.host.probe import probe
from perfguard.records.facts import fact
from perfguard.records.fleet import Engine, Fitness, Schedule, ShardState
from perfguard.report.terminal.fleet import render_hosts
from tests.changed_values import replace
from tests.fleet_hosts import WORK, a_delivery, submitted


@pytest.fixture
def host(database):
    return register(database, "host-1", probe(), ("xeon", "lab"))


def drift(database, host, *, by=1.2):
    found = [heed_canary(database, host, 0.01 * (1 + number % 3 / 1000)) for number in range(10)]
    return [*found, *(heed_canary(database, host, 0.01 * by) for _ in range(3))]


class TestHosts:
    def test_registering_again_keeps_the_fitness(self, database, host):
        assert (host.fitness, host.classes) == (Fitness.FIT, ("xeon", "lab"))
        state_fitness(database, "host-1", Fitness.DRAINED, reason=fact("fleet.drained", author="me", reason="new RAM"))
        again = register(database, "host-1", probe(), ("xeon",))
        assert (again.fitness, again.classes, again.reason.values["reason"]) == (Fitness.DRAINED, ("xeon",), "new RAM")
        assert fitness_of(database, "host-1") is Fitness.DRAINED

    def test_the_shard_that_it_measures_is_shown(self, database, host):
        submission = submitted(database, 1)
        (shard,) = read_status(database, submission_id=submission).shards
        claim(database, shard.id, host.name)
        assert [found.shard_id for found in read_hosts(database)] == [shard.id]

    @pytest.mark.parametrize("by", [1.2, 0.8])
    def test_a_canary_that_moved_makes_a_host_unfit(self, database, host, by):
        *before, found = drift(database, host.name, by=by)
        assert before == [None] * 12
        assert (found.code, found.values["host"]) == ("fleet.canary_drifted", "host-1")
        (seen,) = read_hosts(database)
        assert (seen.fitness, seen.reason) == (Fitness.UNFIT, found)

    def test_a_host_that_is_taken_back_begins_a_new_series(self, database, host):
        drift(database, host.name)
        state_fitness(database, host.name, Fitness.FIT)
        assert heed_canary(database, host.name, 0.012) is None
        assert [(each.fitness, each.reason) for each in read_hosts(database)] == [(Fitness.FIT, None)]

    def test_an_unknown_host_is_named(self, database):
        with pytest.raises(NothingSelectedError, match="no host 'host-9'"):
            state_fitness(database, "host-9", Fitness.FIT)
        assert fitness_of(database, "host-9") is Fitness.DRAINED

    def test_shards_of_an_unfit_host_go_elsewhere(self, database, host):
        register(database, "host-2", probe(), ("xeon",))
        drift(database, host.name)
        (shard,) = read_status(database, submission_id=submitted(database, 1)).shards
        said = []
        for name in ("host-1", "host-2"):
            goes_on = take(
                database, shard.id, host=name, say=said.append, canary=lambda: 0.01,
                measure=lambda attempt, name=name: a_delivery(attempt, name),
            )  # fmt: skip
            assert goes_on == (name == "host-2")
        (found,) = read_status(database, submission_id=shard.submission_id).shards
        assert (found.state, found.host, found.attempt) == (ShardState.DONE, "host-2", 1)
        assert [each.code for each in said] == ["fleet.not_fit", "fleet.measuring", "fleet.accepted"]

    def test_a_host_that_is_drained_while_it_waits_for_another_run_measures_nothing(self, database, host):
        (shard,) = read_status(database, submission_id=submitted(database, 1)).shards
        said = []

        def canary():
            state_fitness(database, "host-1", Fitness.DRAINED)
            return 0.01

        assert not take(database, shard.id, host="host-1", say=said.append, canary=canary, measure=pytest.fail)
        (found,) = read_status(database, submission_id=shard.submission_id).shards
        assert (found.state, found.attempt) == (ShardState.WAITING, 0)
        assert [each.code for each in said] == ["fleet.not_fit"]

    def test_a_host_whose_disk_is_full_is_unfit_and_the_attempt_does_not_count(self, database, host):
        (shard,) = read_status(database, submission_id=submitted(database, 1)).shards
        full = fact("fleet.full", folder="/clones", free_bytes=7)
        said = []
        assert not take(
            database, shard.id, host="host-1", say=said.append, canary=lambda: 0.01,
            measure=lambda attempt: a_delivery(attempt, "host-1", measured=None, problem=full, is_hosts=True),
        )  # fmt: skip
        (found,) = read_status(database, submission_id=shard.submission_id).shards
        assert (found.state, found.attempt) == (ShardState.WAITING, 0)
        assert [(each.fitness, each.reason) for each in read_hosts(database)] == [(Fitness.UNFIT, full)]

    def test_a_host_that_another_run_holds_is_shown_to_wait_until_it_measures(
        self, database, host, tmp_path, monkeypatch
    ):
        (shard,) = read_status(database, submission_id=submitted(database, 1)).shards
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr("perfguard.host.lock._LOOK_S", 0.01)
        monkeypatch.setattr(working, "measure_canary", lambda: 0.01)
        holding, seen = contextlib.ExitStack(), []
        holding.enter_context(host_lock(command="gate"))

        def noted(*said):
            note_waiting(*said)
            seen.extend(read_hosts(database))
            holding.close()

        monkeypatch.setattr(working, "note_waiting", noted)
        measure = lambda attempt: a_delivery(attempt, "host-1")  # noqa: E731
        assert take(database, shard.id, host="host-1", measure=measure, say=lambda _: None)
        assert [each.reason and each.reason.code for each in seen] == ["step.waiting", None]
        assert "waits" in plain_text(render_hosts(seen[:1]))
        assert "waits" not in plain_text(render_hosts(seen[1:]))

    def test_a_host_that_is_gone_can_be_forgotten(self, database, host):
        heed_canary(database, host.name, 0.01)
        remove_host(database, host.name)
        assert read_hosts(database) == ()
        with pytest.raises(NothingSelectedError, match="no host 'host-1'"):
            remove_host(database, host.name)

    def test_a_host_that_is_stopped_gives_its_shard_back(self, database, host):
        (shard,) = read_status(database, submission_id=submitted(database, 1)).shards

        def stopped(attempt):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            take(database, shard.id, host="host-1", measure=stopped, say=lambda _: None, canary=lambda: 0.01)
        (found,) = read_status(database, submission_id=shard.submission_id).shards
        assert (found.state, found.attempt) == (ShardState.WAITING, 0)


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "repository"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(path))
    commit(path)
    return path


def git(path, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *identity, *arguments], cwd=path, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(path):
    git(path, "commit", "--quiet", "--allow-empty", "-m", "more")
    return git(path, "rev-parse", "HEAD")


def test_a_branch_that_is_not_there_is_said(repository):
    with pytest.raises(ArmError, match="has no branch 'absent'"):
        tip_of(str(repository), "absent")


def a_schedule(repository, **fields):
    tip = tip_of(str(repository), "main")
    work = replace(WORK, repository=str(repository), baseline=tip, candidate=tip)
    made = Schedule(
        project=WORK.project, name="nightly", cron="0 2 * * *", branch="main", engine=Engine.QUEUE, work=work,
        machine_classes=("xeon", "epyc"), groups=(("step.a",), ("step.b",)), due_at=time.time() - 1,
    )  # fmt: skip
    return replace(made, **fields)


class TestSchedules:
    def test_what_is_due_is_submitted_once_for_each_class_and_group(self, database, repository):
        save_schedule(database, a_schedule(repository))
        before, after = tip_of(str(repository), "main"), commit(repository)
        (submission,) = submit_due(database)
        assert submit_due(database) == []
        found = read_status(database, submission_id=submission)
        assert (found.submissions[0].work.baseline, found.submissions[0].work.candidate) == (before, after)
        pairs = [(shard.machine_class, shard.patterns) for shard in found.shards]
        assert pairs == [(name, (case,)) for name in ("xeon", "epyc") for case in ("step.a", "step.b")]
        (saved,) = read_schedules(database, project=WORK.project)
        assert saved.due_at > time.time()

    def test_the_next_submission_compares_with_the_one_before(self, database, repository):
        save_schedule(database, a_schedule(repository))
        first = commit(repository)
        submit_due(database)
        (saved,) = read_schedules(database)
        save_schedule(database, replace(saved, due_at=time.time() - 1))
        second = commit(repository)
        (submission,) = submit_due(database)
        work = read_status(database, submission_id=submission).submissions[0].work
        assert (work.baseline, work.candidate) == (first, second)

    @pytest.mark.parametrize("gone", [False, True])
    def test_a_branch_that_has_not_moved_or_cannot_be_asked_waits_for_its_next_time(self, database, repository, gone):
        schedule = a_schedule(repository)
        where = "/nowhere" if gone else str(repository)
        save_schedule(database, replace(schedule, work=replace(schedule.work, repository=where)))
        assert submit_due(database) == []
        assert read_schedules(database)[0].due_at > time.time()

    def test_what_is_not_due_waits(self, database, repository):
        save_schedule(database, a_schedule(repository, due_at=time.time() + 100))
        commit(repository)
        assert submit_due(database) == []

    def test_a_removed_schedule_is_gone(self, database, repository):
        save_schedule(database, a_schedule(repository))
        remove_schedule(database, WORK.project, "nightly")
        assert read_schedules(database) == ()
        with pytest.raises(NothingSelectedError, match="no schedule 'nightly'"):
            remove_schedule(database, WORK.project, "nightly")

    def test_times_are_those_of_cron_in_utc(self):
        assert next_time("0 2 * * *", 1_790_000_000.0) == 1_790_042_400.0
        with pytest.raises(UsageError, match="no cron expression"):
            next_time("at night", 0.0)

    def test_a_branch_that_is_not_there_is_an_error(self, repository):
        with pytest.raises(ArmError):
            tip_of(str(repository), "none")
