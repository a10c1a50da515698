"""Workers on other hosts: a coordinator and a worker in two network namespaces, joined by a virtual cable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

from perfguard.errors import HostUnfitError, UsageError
from perfguard.hetero.addresses import parse_address
from perfguard.hetero.child.remote import _said_by, listening
from perfguard.hetero.messages import Report, ScheduleWork, Stop, decode, encode

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="network namespaces need iproute2's `ip`"),
]

SETTINGS = """
learning_rate = 0.1
epochs = 3
algorithm = "hogbatch"
patience_s = 2.0
[data]
source = "covtype"
examples = 3000
[model]
width = 16
[groups.cpu]
kind = "hogwild"
batch = 32
workers = 1
[groups.far]
kind = "replica"
is_remote = true
batch = 64
"""
ADDRESS = "10.77.0.1:29555"


@pytest.fixture
def hosts():
    """Two namespaces with a cable between them; gives the command that runs in each."""
    names = [f"perfguard{os.getpid()}{side}" for side in "ab"]
    cables = [f"pg{os.getpid() % 10000}{side}" for side in "ab"]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", cables[0], "type", "veth", "peer", "name", cables[1]], check=True)
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), 1):
            subprocess.run(["ip", "link", "set", cable, "netns", name], check=True)
            inside = ["ip", "-n", name]
            subprocess.run([*inside, "addr", "add", f"10.77.0.{number}/24", "dev", cable], check=True)
            subprocess.run([*inside, "link", "set", cable, "up"], check=True)
            subprocess.run([*inside, "link", "set", "lo", "up"], check=True)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def started(host, project, *arguments):
    return subprocess.Popen(
        [*host, sys.executable, "-m", "perfguard", "hetero", *arguments],
        cwd=project.path,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def coordinator(hosts, project, *more):
    project.write("train.toml", SETTINGS)
    return started(hosts[0], project, "train", "train.toml", "--listen", ADDRESS, "-q", "--format", "json", *more)


def test_a_worker_on_another_host_trains_the_same_model(hosts, empty_project):
    train = coordinator(hosts, empty_project)
    work = started(hosts[1], empty_project, "work", ADDRESS)
    out, errors = train.communicate(timeout=200)
    assert train.returncode == 0, errors
    found = json.loads(out)
    counters = found["outcome"]["counters"]
    assert counters["far-0"]["updates"] > 0
    assert sum(each["trained"] for each in counters.values()) == 3 * 3000
    assert found["epochs"][-1]["loss"] < 0.9 * found["epochs"][0]["loss"]
    said, errors = work.communicate(timeout=300)
    assert (work.returncode, said) == (0, "far-0: the run has ended\n"), errors


def test_a_host_that_is_gone_is_reported_and_the_others_go_on(hosts, empty_project):
    train = coordinator(hosts, empty_project, "--epochs", "100000", "--time", "10")
    work = started(hosts[1], empty_project, "work", ADDRESS)
    until = time.monotonic() + 120
    while time.monotonic() < until and not _has_updates(empty_project):
        time.sleep(0.2)
    for pid in subprocess.run(
        ["pgrep", "-P", str(work.pid), "-f", "child.work"], capture_output=True, text=True
    ).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    work.kill()
    work.communicate(timeout=300)
    out, errors = train.communicate(timeout=200)
    assert train.returncode == 0, errors
    notes = {note["code"]: note["values"] for note in json.loads(out)["notes"]}
    assert notes["training.worker_lost"]["worker"] == "far-0"
    assert "its host is gone" in notes["training.worker_lost"]["reason"]


def _has_updates(project):
    for events in project.path.glob(".perfguard/runs/*/events.jsonl"):
        for line in events.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "training_epoch" and event["updates"].get("far"):
                return True
    return False


def test_nobody_who_joins_is_an_error_with_the_command_to_type(empty_project):
    empty_project.write("train.toml", SETTINGS)
    done = empty_project.run("hetero", "train", "train.toml")
    assert done.returncode == 2
    assert "give the address that they join, --listen HOST:PORT" in done.stderr
    done = empty_project.run("hetero", "work", "127.0.0.1:29556", "--wait", "1")
    assert done.returncode == 3
    assert "no coordinator could be joined at 127.0.0.1:29556" in done.stderr


def test_hosts_that_do_not_come_are_not_waited_for_longer_than_asked():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    with pytest.raises(HostUnfitError, match=r"2 remote workers did not join at 127\.0\.0\.1:\d+ within 0\.5 s"):
        with listening(address, b"job", 2, timeout_s=0.5):
            pass


@pytest.mark.parametrize("message", [Report(worker="far-1", ticket=1, loss=1.0), Stop()])
def test_what_no_worker_says_is_refused(message):
    assert _said_by("far-1", ScheduleWork(worker="far-1")) == ScheduleWork(worker="far-1")
    with pytest.raises(ValueError, match="far-0 sent"):
        _said_by("far-0", decode(encode(message)))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:70000", "host:http"])
def test_other_texts_are_no_addresses(text):
    with pytest.raises(UsageError, match="write HOST:PORT"):
        parse_address(text)
