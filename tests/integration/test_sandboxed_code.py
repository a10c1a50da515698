"""What code in a sandbox of bubblewrap sees and can do: its own folders and processes, and nothing of the user's."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import socket
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from perfguard.records.plan import Sandbox
from perfguard.runner.process import limits
from perfguard.runner.process.launching import launched
from perfguard.runner.process.sandboxing import Holder, holder, interpreter_of
from tests.tiny_projects import wait_for

pytestmark = pytest.mark.skipif(holder() is not Holder.BUBBLEWRAP, reason="bubblewrap does not work here")


@pytest.fixture
def places(tmp_path):
    """A repository with an arm's folders in it."""
    (tmp_path / "arm" / "mine").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("token = secret", encoding="utf-8")
    (tmp_path / "verdict.json").write_text("pass", encoding="utf-8")
    return tmp_path


def command(places, code, **more):
    sandbox = Sandbox(
        writable=(str(places / "arm" / "mine"),),
        readable=(str(places / "arm"), *interpreter_of(sys.executable).folders),
        hidden=(str(places),),
        **more,
    )
    return launched([sys.executable, "-c", textwrap.dedent(code)], sandbox=sandbox)


def run(places, code, **more):
    done = subprocess.run(
        command(places, code, **more), cwd=places / "arm", capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize(
    "attempt",
    [
        "open('../verdict.json', 'w')",
        "open('new', 'w')",
        "open('/etc/new', 'w')",
        "open(os.path.expanduser('~/new'), 'w')",
    ],
)
def test_it_changes_nothing_but_its_own_folder(places, attempt):
    assert run(places, f"import os\ntry:\n    {attempt}\nexcept OSError as error:\n    print(error.errno)") in (
        "30",
        "2",
    )
    assert run(places, "open('mine/file', 'w').write('text')\nprint(open('mine/file').read())") == "text"
    assert (places / "verdict.json").read_text(encoding="utf-8") == "pass"


def test_it_sees_no_repository_no_home_and_no_process_of_others(places):
    code = """
    import os
    from pathlib import Path
    print(Path("../.git").exists(), Path("../verdict.json").exists(), list(Path("/home").iterdir()))
    print([name for name in os.listdir("/proc") if name.isdigit()])
    print(Path("/etc/shadow").read_text() if Path("/etc/shadow").exists() else "")
    """
    assert run(places, code).splitlines() == ["False False []", "['1', '2']"]


def test_it_reaches_the_network_only_where_it_may(places):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
        import socket
        try:
            socket.create_connection(("127.0.0.1", {port}), 5)
            print("joined")
        except ConnectionRefusedError:
            print("refused")
        """
        assert run(places, code) == "refused"
        assert run(places, code, network=True) == "joined"


def test_it_has_no_terminal_even_where_who_started_it_has_one(places):
    master, slave = pty.openpty()
    code = """
    import os
    try:
        os.open("/dev/tty", os.O_RDWR)
        print("a terminal")
    except OSError as error:
        print(error.errno)
    """
    try:
        done = subprocess.run(
            command(places, code),
            cwd=places / "arm", capture_output=True, text=True, timeout=300, check=False, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
        )  # fmt: skip
    finally:
        os.close(master)
        os.close(slave)
    assert int(done.stdout) == errno.ENXIO, done.stderr


def test_it_cannot_reach_who_started_it(places):
    attempt = f"""
    import os, resource, signal
    parent = {os.getpid()}
    for reach in (lambda: os.kill(parent, 0), lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1))):
        try:
            reach()
        except ProcessLookupError:
            print("none")
    """
    assert run(places, attempt) == "none\nnone"


def test_a_daemon_ends_with_it(places):
    code = """
    import os, subprocess
    subprocess.Popen(["/bin/sh", "-c", "setsid sleep 600.125 &"], start_new_session=True).wait()
    print(any("600.125" in open(f"/proc/{name}/cmdline").read() for name in os.listdir("/proc") if name.isdigit()))
    """
    assert run(places, code) == "True"
    time.sleep(0.1)
    assert not [each for each in psutil.process_iter(["cmdline"]) if "600.125" in " ".join(each.info["cmdline"] or ())]


@pytest.fixture
def few_processes(monkeypatch):
    monkeypatch.setattr(limits, "MOST_PROCESSES", 40)
    limits.limited_groups.cache_clear()
    yield [group for group in limits.limited_groups() if (group / "pids.max").exists()]
    limits.limited_groups.cache_clear()


def test_it_starts_no_more_processes_than_it_may(places, few_processes):
    if not few_processes:
        pytest.skip("this process may make no control group")
    code = """
    import os, time
    started = 0
    try:
        for _ in range(100):
            if not os.fork():
                time.sleep(600)
            started += 1
    except BlockingIOError:
        print(20 < started < 40)
    """
    assert run(places, code) == "True"


def test_it_is_what_the_kernel_ends_first_and_has_no_more_memory_than_there_is(places):
    code = """
    import os, resource
    print(open("/proc/self/oom_score_adj").read().strip())
    print(resource.getrlimit(resource.RLIMIT_DATA)[1] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    """
    assert run(places, code).splitlines() == ["1000", "True"]


def test_what_a_killed_process_left_of_its_groups_is_removed(tmp_path):
    own = tmp_path / "own"
    own.write_text("3:pids:/here\n0::/\n")
    (tmp_path / "pids" / "here" / "perfguard-999999999").mkdir(parents=True)
    assert limits.limited_groups(tmp_path, own) == ()  # folders of no control group have no limits
    assert list((tmp_path / "pids" / "here").iterdir()) == []


STARTER = """
import subprocess, sys
from perfguard.records.plan import Sandbox
from perfguard.runner.process.launching import launched
from perfguard.runner.process.sandboxing import interpreter_of

sandbox = Sandbox(readable=interpreter_of(sys.executable).folders)
code = "import time; print('up', flush=True); time.sleep(600)"
subprocess.run(launched([sys.executable, "-c", code], sandbox=sandbox))
"""


def test_it_dies_with_who_started_it():
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout.readline() == "up\n"
        started = psutil.Process(starter.pid).children(recursive=True)
        assert len(started) >= 2
        starter.kill()
    assert wait_for(lambda: not any(map(is_living, started)))


def is_living(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_shared_memory_and_temporary_files_are_its_own(places):
    code = """
    import os
    for place in ("/dev/shm", "/tmp", "/var/tmp"):
        with open(os.path.join(place, "perfguard-left"), "w") as file:
            file.write("x")
    print("written")
    """
    assert run(places, code) == "written"
    assert not [place for place in ("/dev/shm", "/tmp", "/var/tmp") if Path(place, "perfguard-left").exists()]
