"""Shards as Slurm's batch jobs, on a real cluster of three nodes that are all this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from perfguard.errors import MeasurementError
from perfguard.fleet import slurm
from perfguard.fleet.hosts import register, state_fitness
from perfguard.fleet.overview import read_status
from perfguard.fleet.schedules import save_schedule
from perfguard.history.database import opened
from perfguard.history.queries import read_log
from perfguard.host.probe import probe
from perfguard.records.fleet import Engine, Fitness, Schedule, ShardState
from perfguard.runner.arms.git import resolve_commit
from tests import slurm_clusters
from tests.changed_values import replace
from tests.fleet_hosts import WORK, submitted
from tests.tiny_projects import wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster of one's own needs root"),
    pytest.mark.skipif(slurm_clusters.missing() != [], reason=f"not installed: {slurm_clusters.missing()}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = slurm_clusters.Cluster(Path(tmp_path_factory.mktemp("slurm")))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def database(tmp_path, cluster, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    cluster.resume_drained()  # after what a test before this one killed
    with opened(f"sqlite:///{tmp_path / 'history.sqlite'}", tmp_path) as found:
        yield found


@pytest.fixture
def work(project, tmp_path, monkeypatch):
    """A tiny project's commit against the one before; each node has its own place for clones and locks."""
    base = resolve_commit(project.path, "HEAD")
    project.write("note.txt", "more")
    tip = project.commit()
    for name, value in project.environment.items():
        if name.startswith(("PYTHON", "PERFGUARD", "XDG")):
            monkeypatch.setenv(name, value)
    return replace(
        WORK, repository=str(project.path), folder="", baseline=base, candidate=tip, suite="tiny", budget_s=20.0,
        arguments=("--measure-anyway", "--max-blocks", "3", "--samples", "2", "-q"),
        shared_folder=str(tmp_path / "shared"),
    )  # fmt: skip


def submission_of(database, work, shards):
    return submitted(database, shards, engine=Engine.SLURM, work_=work, name=slurm_clusters.FEATURE)


def shards_of(database, submission):
    return read_status(database, submission_id=submission).shards


def tended(database, submission):
    """Whether all shards have ended, after looking after them once."""
    try:
        slurm.tend(database)
    except MeasurementError:  # the controller is away
        return False
    return all(shard.state.has_ended for shard in shards_of(database, submission))


def ended(database, submission):
    def look():
        time.sleep(1)
        return tended(database, submission)

    assert wait_for(look), [
        shards_of(database, submission),
        subprocess.run(["squeue", "-l"], capture_output=True, text=True).stdout,
        *(
            path.read_text(errors="replace")[-1500:]
            for path in Path(read_status(database).submissions[0].work.shared_folder).glob("*/*.log")
        ),
    ]
    return shards_of(database, submission)


def require_whole(database, shards):
    """Each shard has one run, of one node."""
    assert {shard.state for shard in shards} == {ShardState.DONE}, shards
    assert {shard.exit_code for shard in shards} <= {0, 4}
    assert sorted(shard.run_id for shard in shards) == sorted(
        logged.run.run_id for logged in read_log(database, WORK.project, last=100)
    )
    assert {shard.host for shard in shards} <= set(slurm_clusters.NODES)


def test_shards_are_measured_on_nodes_of_their_own_and_their_runs_are_in_the_history(database, work):
    submission = submission_of(database, work, 2)
    slurm.tend(database)
    listed = subprocess.run(["squeue", "-h", "-r", "-o", "%j %f"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 2
    assert all(line.startswith("perfguard-") and line.endswith(slurm_clusters.FEATURE) for line in listed.splitlines())
    shards = ended(database, submission)
    require_whole(database, shards)


def test_what_dies_is_measured_again_and_nothing_twice(database, work, cluster, monkeypatch):
    monkeypatch.setattr(slurm, "_GRACE_S", 10.0)
    submission = submission_of(database, work, 3)
    slurm.tend(database)
    assert wait_for(lambda: all(cluster.pids_on(node) for node in slurm_clusters.NODES))
    # A node dies with all that runs there, the batch shell of another one is killed, a third job is requeued by hand.
    cluster.kill("node-1")
    cluster.kill_jobs_of("node-1")
    cluster.kill_batch_shell_on("node-2")
    jobs = subprocess.run(
        ["squeue", "-h", "-r", "-w", "node-3", "-o", "%A"], capture_output=True, text=True, check=True
    ).stdout.split()
    subprocess.run(["scontrol", "requeue", *jobs[:1]], check=False)
    # The controller is killed, and comes back.
    cluster.kill("slurmctld")
    assert not tended(database, submission)
    cluster.start_controller()
    cluster.start_node("node-1")
    require_whole(database, ended(database, submission))


def test_jobs_that_slurm_has_lost_are_submitted_again(database, work, monkeypatch):
    monkeypatch.setattr(slurm, "_GRACE_S", 1.0)
    submission = submission_of(database, work, 1)
    slurm.tend(database)
    subprocess.run(["scancel", "--user=root"], check=True)
    assert wait_for(lambda: not subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout)
    (shard,) = ended(database, submission)
    assert shard.state is ShardState.DONE
    assert shard.attempt >= 2  # a gate that a busy host fails is tried again, too


def test_a_job_that_slurm_holds_after_a_failed_launch_is_submitted_again(database, work, cluster, monkeypatch):
    monkeypatch.setattr(slurm, "_GRACE_S", 1.0)
    cluster.refuse_next_launch()
    submission = submission_of(database, work, 1)
    slurm.tend(database)
    assert wait_for(lambda: "held" in cluster.run("squeue", "-h", "-o", "%r"))
    (shard,) = ended(database, submission)
    assert (shard.state, shard.attempt >= 2) == (ShardState.DONE, True)
    drained = cluster.drained()
    assert list(drained.values()).count("Prolog error") == 1
    assert shard.host not in drained


def test_what_is_scheduled_is_submitted_and_an_unfit_host_of_the_queue_is_no_node(database, work, cluster):
    register(database, "bench-1", probe(), ("lab",))
    state_fitness(database, "bench-1", Fitness.DRAINED)
    schedule = Schedule(
        project=WORK.project, name="nightly", cron="0 2 * * *", branch="main", engine=Engine.SLURM,
        work=replace(work, candidate=work.baseline), machine_classes=(slurm_clusters.FEATURE,), groups=((),),
        due_at=time.time() - 1,
    )  # fmt: skip
    subprocess.run(["git", "branch", "-f", "main"], cwd=work.repository, check=False)
    save_schedule(database, schedule)
    slurm.tend(database)
    (submission,) = read_status(database).submissions
    assert (submission.work.baseline, submission.work.candidate) == (work.baseline, work.candidate)
    require_whole(database, ended(database, submission.id))


def test_a_result_of_an_attempt_that_was_replaced_is_dropped(database, work):
    submission = submission_of(database, work, 1)
    slurm.tend(database)
    shared = Path(work.shared_folder)
    assert wait_for(lambda: list(shared.glob("*/*.result")))
    (result,) = shared.glob("*/*.result")
    kept = shared / "kept"
    shutil.copy(result, kept)
    require_whole(database, ended(database, submission))
    late = submission_of(database, work, 1)
    slurm.tend(database)
    (array,) = [path for path in shared.iterdir() if path.is_dir() and not list(path.glob("*.log"))] or [
        shared / ("f" * 16)
    ]
    array.mkdir(exist_ok=True)
    shutil.copy(kept, array / "9-node-9-1.result")
    damaged = {"5": "{", "6": "[" * 100_000, "7": kept.read_text().replace('"attempt":', '"attempt":1' + "0" * 30)}
    for name, text in damaged.items():
        (array / f"{name}-node-9-1.result").write_text(text, encoding="utf-8")
    (array / "8-node-9-1.result").symlink_to("/dev/zero")
    require_whole(database, [*shards_of(database, submission), *ended(database, late)])
    assert sorted(path.name[0] for path in array.glob("*.damaged")) == [*damaged, "8"]
