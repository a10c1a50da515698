"""Who may deliver a shard, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from perfguard.errors import NothingSelectedError
from perfguard.fleet.overview import read_status, require_submission
from perfguard.fleet.shards import cancel, claim, deliver, expire, give_back, renew
from perfguard.history.database import opened
from perfguard.history.queries import read_log, read_samples
from perfguard.records.facts import fact
from perfguard.records.fleet import Acceptance, Engine, ShardState
from tests.fleet_hosts import CASE, WORK, a_delivery, number_of, submitted


@pytest.fixture
def shard_id(database):
    return the_shards(database, submitted(database, 1))[0].id


def the_shards(database, submission):
    return read_status(database, submission_id=submission).shards


def the_shard(database, shard_id):
    return next(shard for shard in read_status(database).shards if shard.id == shard_id)


def expired(database, shard_id, host):
    """An attempt whose time is over."""
    attempt = claim(database, shard_id, host)
    renew(database, [attempt.token], seconds=-1.0)
    assert expire(database, Engine.QUEUE) == 1
    return attempt


def test_a_claimed_shard_is_delivered_once_and_its_run_is_in_the_history(database, shard_id):
    attempt = claim(database, shard_id, "host-1")
    assert (attempt.number, attempt.work, attempt.patterns) == (1, WORK, ())
    assert claim(database, shard_id, "host-2") is None
    assert deliver(database, a_delivery(attempt, "host-1")) is Acceptance.ACCEPTED
    shard = the_shard(database, shard_id)
    assert (shard.state, shard.host, shard.exit_code) == (ShardState.DONE, "host-1", 0)
    (logged,) = read_log(database, WORK.project, last=10)
    assert logged.run.run_id == shard.run_id == f"shard-{shard_id}-1-host-1"
    assert read_samples(database, logged.row)[CASE].candidate_s == ((number_of("host-1"),) * 6,)


def test_delivering_twice_is_known_and_adds_nothing(database, shard_id):
    attempt = claim(database, shard_id, "host-1")
    deliver(database, a_delivery(attempt, "host-1"))
    assert deliver(database, a_delivery(attempt, "host-1")) is Acceptance.KNOWN
    assert len(read_log(database, WORK.project, last=10)) == 1


def test_an_attempt_whose_lease_ended_delivers_in_vain_once_another_took_its_place(database, shard_id):
    late = expired(database, shard_id, "host-1")
    newer = claim(database, shard_id, "host-2")
    assert newer.number == 2
    assert newer.token != late.token
    assert deliver(database, a_delivery(late, "host-1")) is Acceptance.REFUSED
    assert deliver(database, a_delivery(newer, "host-2")) is Acceptance.ACCEPTED
    assert deliver(database, a_delivery(late, "host-1")) is Acceptance.REFUSED
    assert [logged.run.machine_id for logged in read_log(database, WORK.project, last=10)] == ["host-2"]


def test_an_attempt_that_nobody_replaced_is_refused_once_it_was_taken_away(database, shard_id):
    late = expired(database, shard_id, "host-1")
    assert deliver(database, a_delivery(late, "host-1")) is Acceptance.REFUSED
    assert the_shard(database, shard_id).problem.code == "fleet.lease_expired"


def test_a_guessed_token_or_number_is_refused(database, shard_id):
    attempt = claim(database, shard_id, "host-1")
    for change in ({"token": "0" * 32}, {"attempt": 2}, {"shard_id": shard_id + 1}):
        fields = {"shard_id": attempt.shard_id, "attempt": attempt.number, "token": attempt.token, **change}
        forged = a_delivery(attempt, "host-1")
        forged = type(forged)(
            **{**{name: getattr(forged, name) for name in ("host", "exit_code", "measured")}, **fields}
        )
        assert deliver(database, forged) is Acceptance.REFUSED
    assert the_shard(database, shard_id).state is ShardState.RUNNING


def test_a_lease_that_goes_on_is_not_taken_away(database, shard_id):
    claim(database, shard_id, "host-1")
    assert expire(database, Engine.QUEUE) == 0
    assert the_shard(database, shard_id).state is ShardState.RUNNING


def test_the_other_engines_leases_are_left_alone(database, shard_id):
    attempt = claim(database, shard_id, "host-1")
    renew(database, [attempt.token], seconds=-1.0)
    assert expire(database, Engine.SLURM) == 0
    assert expire(database, Engine.QUEUE) == 1


def test_a_shard_fails_after_three_attempts(database, shard_id):
    for host in ("host-1", "host-2", "host-3"):
        expired(database, shard_id, host)
    assert the_shard(database, shard_id).state is ShardState.FAILED
    assert claim(database, shard_id, "host-4") is None


def test_a_failure_lets_another_host_try_unless_it_is_final(database):
    first, second = (shard.id for shard in the_shards(database, submitted(database, 2)))
    problem = fact("fleet.gate_failed", text="no space left on device")
    for shard_id, is_final in ((first, False), (second, True)):
        attempt = claim(database, shard_id, "host-1")
        failed = a_delivery(attempt, "host-1", measured=None, exit_code=3, problem=problem, is_final=is_final)
        assert deliver(database, failed) is Acceptance.ACCEPTED
    assert [the_shard(database, each).state for each in (first, second)] == [ShardState.WAITING, ShardState.FAILED]
    assert the_shard(database, first).problem == problem


def test_a_shard_that_was_given_back_counts_no_attempt(database, shard_id):
    assert give_back(database, claim(database, shard_id, "host-1"))
    shard = the_shard(database, shard_id)
    assert (shard.state, shard.attempt, shard.host) == (ShardState.WAITING, 0, None)


def test_a_late_host_cannot_give_back_what_another_one_measures(database, shard_id):
    late = expired(database, shard_id, "host-1")
    claim(database, shard_id, "host-2")
    assert not give_back(database, late)
    assert the_shard(database, shard_id).host == "host-2"


def test_a_cancelled_submission_takes_nothing_more(database):
    submission = submitted(database, 3)
    waiting, running, done = (shard.id for shard in the_shards(database, submission))
    finished, late = claim(database, done, "host-1"), claim(database, running, "host-2")
    deliver(database, a_delivery(finished, "host-1"))
    assert cancel(database, submission) == 2
    assert claim(database, waiting, "host-3") is None
    assert deliver(database, a_delivery(late, "host-2")) is Acceptance.REFUSED
    states = [shard.state for shard in the_shards(database, submission)]
    assert states == [ShardState.CANCELLED, ShardState.CANCELLED, ShardState.DONE]


def test_a_submission_that_is_not_there_is_named(database):
    with pytest.raises(NothingSelectedError, match="no submission 77"):
        require_submission(database, 77)
    with pytest.raises(NothingSelectedError, match="no submission 77"):
        cancel(database, 77)


def test_of_many_hosts_that_ask_at_once_each_shard_goes_to_one(url, tmp_path):
    with opened(url, tmp_path, upgrades=True) as database:
        shards = [shard.id for shard in the_shards(database, submitted(database, 8))]

    def claims(host):
        with opened(url, tmp_path) as own:
            return [shard_id for shard_id in shards if claim(own, shard_id, host) is not None]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(claims, [f"host-{number}" for number in range(4)]))
    assert sorted(shard_id for each in found for shard_id in each) == shards
