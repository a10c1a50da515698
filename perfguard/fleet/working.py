"""One shard on a host: the canary, the claim, the measurement, the delivery."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from perfguard.errors import DatabaseError, HostUnfitError
from perfguard.fleet.canary import measure_canary
from perfguard.fleet.hosts import fitness_of, heed_canary, note_waiting, state_fitness
from perfguard.fleet.shards import claim, deliver, give_back
from perfguard.history.database import Database, data_folder
from perfguard.host.lock import host_lock
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.fleet import Acceptance, Attempt, Delivery, Fitness

_PATIENCE_S = 900.0  # With a database that was restarted or cannot be reached
_LONGEST_PAUSE_S = 30.0


def clones_of(environment: Mapping[str, str]) -> Path:
    """Where this host keeps its clones of repositories: in the user's data folder."""
    return data_folder(environment) / "fleet"


def host_name() -> str:
    """What this host is called in the register; in a batch job by Slurm."""
    return os.environ.get("SLURMD_NODENAME") or platform.node() or "unnamed"


def take(
    database: Database,
    shard_id: int,
    *,
    host: str,
    measure: Callable[[Attempt], Delivery],
    say: Callable[[Fact], None],
    canary: Callable[[], float] | None = None,
) -> bool:
    """Measure a shard if this host is fit and the shard waits; whether the host may go on.

    Raises:
        KeyboardInterrupt: A signal ended it; the shard waits for another host.
        DatabaseError: The database cannot be reached for a quarter of an hour.
    """
    if not _is_fit(database, host, say):
        return False
    canary_s = _canary_alone(database, host, say) if canary is None else canary()
    if drift := heed_canary(database, host, canary_s):
        say(drift)
        return False
    if not _is_fit(database, host, say):  # it may have been drained while another run was waited for
        return False
    attempt = claim(database, shard_id, host)
    if attempt is None:
        return True
    say(fact("fleet.measuring", shard=shard_id, attempt=attempt.number, project=attempt.work.project))
    try:
        delivery = measure(attempt)
    except BaseException:
        give_back(database, attempt)
        raise
    if delivery.is_hosts and delivery.problem is not None:
        say(delivery.problem)
        give_back(database, attempt)
        state_fitness(database, host, Fitness.UNFIT, reason=delivery.problem)
        return False
    say(_outcome(delivery, deliver_patiently(database, delivery, say)))
    return True


def _is_fit(database: Database, host: str, say: Callable[[Fact], None]) -> bool:
    if fitness_of(database, host) is Fitness.FIT:
        return True
    say(fact("fleet.not_fit", host=host))
    return False


@contextlib.contextmanager
def only_worker(folder: Path, host: str) -> Iterator[None]:
    """While entered, no other worker of this machine has this name and these clones.

    Raises:
        HostUnfitError: One has.
    """
    with (folder / f"{quote(host, safe='')}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostUnfitError(
                f"a worker called {host} runs on this machine already; end it first, or give this one another --name"
            ) from None
        yield


def _canary_alone(database: Database, host: str, say: Callable[[Fact], None]) -> float:
    """Measure the canary once nobody else measures on this host; while it waits, the register says so."""
    has_waited = False

    def waiting(owner: str, waited_s: float) -> None:
        nonlocal has_waited
        has_waited = True
        found = fact("step.waiting", owner=owner, waited_s=waited_s or None)
        say(found)
        note_waiting(database, host, found)

    with host_lock(command="fleet worker", waiting=waiting):
        if has_waited:
            note_waiting(database, host, None)
        return measure_canary()


def deliver_patiently(database: Database, delivery: Delivery, say: Callable[[Fact], None]) -> Acceptance:
    """Deliver, and wait for a database that is away for a while."""
    deadline, pause_s = time.monotonic() + _PATIENCE_S, 1.0
    while True:
        try:
            return deliver(database, delivery)
        except DatabaseError as error:
            if time.monotonic() > deadline:
                raise
            say(fact("fleet.database_away", severity=Severity.NOTABLE, shard=delivery.shard_id, error=str(error)))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _outcome(delivery: Delivery, acceptance: Acceptance) -> Fact:
    if acceptance is Acceptance.REFUSED:
        return fact("fleet.refused", shard=delivery.shard_id, attempt=delivery.attempt)
    if delivery.problem is not None:
        return delivery.problem
    return fact("fleet.accepted", shard=delivery.shard_id, attempt=delivery.attempt, exit_code=delivery.exit_code)
