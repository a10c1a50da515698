"""A fleet of three hosts in network namespaces, whose parts are killed, stopped and restarted while it measures."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import psycopg
import pytest

from perfguard.fleet.overview import read_status
from perfguard.fleet.queue import create_queue
from perfguard.history.database import opened
from perfguard.history.queries import read_log, read_samples
from perfguard.records.fleet import ShardState
from tests import postgresql_servers
from tests.conftest import SOURCE
from tests.fleet_hosts import CASE, WORK, number_of
from tests.tiny_projects import wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="network namespaces need iproute2's `ip`"),
]

SHARDS = 60
LEASE_S = 12.0
HOSTS = ("host-1", "host-2", "host-3")


def network_of(number):
    """The address of the database's end of a cable, and that of the host's."""
    return f"10.79.{number}.1", f"10.79.{number}.2"


@pytest.fixture
def namespaces():
    """A namespace for each host, with a cable to the database's host; by host."""
    names = {host: f"perfguard{os.getpid()}{host[-1]}" for host in HOSTS}
    try:
        for number, name in enumerate(names.values(), 1):
            ours, theirs = network_of(number)
            cable = f"pgf{os.getpid() % 100000}{number}"
            run = [
                ["ip", "netns", "add", name],
                ["ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name],
                ["ip", "addr", "add", f"{ours}/24", "dev", cable],
                ["ip", "link", "set", cable, "up"],
                ["ip", "-n", name, "addr", "add", f"{theirs}/24", "dev", "eth0"],
                ["ip", "-n", name, "link", "set", "eth0", "up"],
            ]
            for command in run:
                subprocess.run(command, check=True)
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


NOTE_CLAIMS = """
CREATE TABLE claims (number serial, shard_id integer, attempt integer, host text);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO claims (shard_id, attempt, host) VALUES (NEW.id, NEW.attempt, NEW.host);
    RETURN NEW;
END $$;
CREATE TRIGGER note_claim AFTER UPDATE ON fleet_shards FOR EACH ROW
WHEN (NEW.state = 'running' AND NEW.attempt <> OLD.attempt) EXECUTE FUNCTION note_claim();
"""


@dataclass
class Fleet:
    """The processes of a fleet; its database notes each claim of a shard."""

    server: postgresql_servers.Server
    namespaces: dict[str, str]
    folder: object
    workers: dict[str, subprocess.Popen] = field(default_factory=dict)

    def start(self, host):
        address, _ = network_of(int(host[-1]))
        command = [sys.executable, "-m", "tests.fleet_hosts", self.server.url(seen_from=address), host]
        with (self.folder / f"{host}.err").open("ab") as err:
            self.workers[host] = subprocess.Popen(
                ["ip", "netns", "exec", self.namespaces[host], *command], cwd=SOURCE, stdout=err, stderr=err
            )

    def claims(self):
        """The host of each claim, by shard and attempt, in their order."""
        with psycopg.connect(self.server.url()) as connection:
            rows = connection.execute("SELECT shard_id, attempt, host FROM claims ORDER BY number").fetchall()
        return {(shard_id, attempt): host for shard_id, attempt, host in rows}

    def measuring(self, host):
        """The shard that a host measures now."""
        with psycopg.connect(self.server.url()) as connection:
            found = connection.execute(
                "SELECT id FROM fleet_shards WHERE state = 'running' AND host = %s", (host,)
            ).fetchone()
        return found and found[0]

    def is_running(self, shard_id):
        with psycopg.connect(self.server.url()) as connection:
            rows = connection.execute("SELECT 1 FROM fleet_shards WHERE state = 'running' AND id = %s", (shard_id,))
            return rows.fetchone() is not None

    def accepted(self):
        with contextlib.suppress(psycopg.Error), psycopg.connect(self.server.url()) as connection:
            return connection.execute("SELECT count(*) FROM fleet_shards WHERE state = 'done'").fetchone()[0]
        return 0

    def caught(self, host):
        """A shard that the host is measuring; waits for one."""
        found = []
        assert wait_for(lambda: found.append(self.measuring(host)) or found[-1])
        return found[-1]


@pytest.fixture
def fleet(namespaces, tmp_path):
    if postgresql_servers.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    made = Fleet(postgresql_servers.started(network="10.79.0.0/16"), namespaces, tmp_path)
    try:
        with opened(made.server.url(), tmp_path, upgrades=True) as database:
            create_queue(database)
        with psycopg.connect(made.server.url()) as connection:
            connection.execute(NOTE_CLAIMS)
        yield made
    finally:
        for worker in made.workers.values():
            worker.kill()
            worker.wait()
        made.server.stop()


DYING_SUBMITTER = f"""
import os, signal, sys
from pathlib import Path
from perfguard.history.database import opened
from tests.fleet_hosts import submitted
with opened(sys.argv[1], Path.cwd()) as database:
    submitted(database, {SHARDS}, lease={LEASE_S})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_shard_is_accepted_once_whatever_dies(fleet, tmp_path):
    died = subprocess.run([sys.executable, "-c", DYING_SUBMITTER, fleet.server.url()], cwd=SOURCE, check=False)
    assert died.returncode == -signal.SIGKILL  # its shards are there, and nobody has queued one
    for host in HOSTS:
        fleet.start(host)
    lost = _attack(fleet)
    assert wait_for(lambda: fleet.accepted() == SHARDS), _said(tmp_path)
    _require_one_run_a_shard(fleet, tmp_path)
    claims = fleet.claims()
    for shard_id, host in lost.items():
        assert claims[shard_id, 1] == host
        assert claims[shard_id, 2] != host
    assert wait_for(lambda: _doing(fleet) == [])


def _attack(fleet):
    """Kill a host, stop another past its lease, kill the database; the first host of each lost shard, by its id."""
    lost = {}
    killed = fleet.caught("host-1")
    fleet.workers["host-1"].kill()
    stopped = fleet.caught("host-2")
    fleet.workers["host-2"].send_signal(signal.SIGSTOP)
    fleet.workers["host-1"].wait()
    for shard_id in (killed, stopped):
        if fleet.is_running(shard_id):  # else it was delivered in the moment before
            lost[shard_id] = fleet.claims()[shard_id, 1]
    assert lost
    fleet.server.kill()
    time.sleep(1.0)
    fleet.server.start()
    assert wait_for(lambda: all((shard_id, 2) in fleet.claims() for shard_id in lost)), _said(fleet.folder)
    fleet.workers["host-2"].send_signal(signal.SIGCONT)
    fleet.start("host-1")
    return lost


def _require_one_run_a_shard(fleet, tmp_path):
    with opened(fleet.server.url(), tmp_path) as database:
        shards = read_status(database).shards
        runs = {logged.run.run_id: logged for logged in read_log(database, WORK.project, last=10 * SHARDS)}
        assert Counter(shard.state for shard in shards) == {ShardState.DONE: SHARDS}
        assert sorted(shard.run_id for shard in shards) == sorted(runs)
        for shard in shards:
            logged = runs[shard.run_id]
            assert logged.run.machine_id == shard.host
            assert logged.run.run_id == f"shard-{shard.id}-{shard.attempt}-{shard.host}"
            kept = read_samples(database, logged.row)[CASE]
            assert {value for block in (*kept.baseline_s, *kept.candidate_s) for value in block} == {
                number_of(shard.host)
            }


def _doing(fleet):
    with psycopg.connect(fleet.server.url()) as connection:
        return connection.execute("SELECT id FROM procrastinate_jobs WHERE status = 'doing'").fetchall()


def _said(folder):
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.err"))
