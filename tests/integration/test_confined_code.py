"""What code can still do that Landlock holds: it may read files, and change none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from perfguard.records.plan import Sandbox
from perfguard.runner.process import launching
from perfguard.runner.process.launcher import confinement_version
from perfguard.runner.process.launching import launched
from perfguard.runner.process.sandboxing import Holder

pytestmark = pytest.mark.skipif(not confinement_version(), reason="this kernel has no Landlock")

TRUNCATION = 3
"""The version of Landlock from which on emptying a file is a right (Linux 6.2)."""


@pytest.fixture
def tmp_path(outside_memory):
    return outside_memory


@pytest.fixture(autouse=True)
def _by_landlock(monkeypatch):
    monkeypatch.setattr(launching, "holder", lambda: Holder.LANDLOCK)


@pytest.fixture
def places(tmp_path):
    """A folder that may be changed, and one that may not."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "verdict.json").write_text("pass", encoding="utf-8")
    return tmp_path


def run_confined(places, code, **options):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        launched(command, sandbox=Sandbox(writable=(str(places / "mine"),))),
        cwd=places,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def test_the_session_keyring_of_who_started_it_is_not_its_own(places):
    keyctl = "{'x86_64': 250}.get(platform.machine(), 219)"
    keyring = f"import ctypes, platform; print(ctypes.CDLL(None).syscall({keyctl}, 0, -3, 1))"
    own = subprocess.run([sys.executable, "-c", keyring], capture_output=True, text=True, check=True).stdout
    if int(own) < 0:
        pytest.skip("this kernel has no keyrings")
    confined = run_confined(places, keyring)
    assert int(confined.stdout) > 0, confined.stderr
    assert confined.stdout != own


@pytest.mark.parametrize(
    "attempt",
    [
        "open('theirs/verdict.json', 'w')",
        "open('theirs/verdict.json', 'a')",
        "open('theirs/new', 'x')",
        pytest.param(
            "os.truncate('theirs/verdict.json', 0)",
            marks=pytest.mark.skipif(
                confinement_version() < TRUNCATION, reason="this kernel's Landlock knows no right to empty files"
            ),
        ),
        "os.remove('theirs/verdict.json')",
        "os.rename('theirs/verdict.json', 'mine/verdict.json')",
        "os.link('theirs/verdict.json', 'mine/verdict.json')",
        "os.mkdir('theirs/folder')",
        "os.symlink('/etc/passwd', 'theirs/link')",
        "os.mkfifo('theirs/pipe')",
        "open('mine/../theirs/new', 'x')",
        "open('/tmp/perfguard-must-not-be', 'x')",
    ],
)
def test_nothing_outside_its_folder_can_be_changed(places, attempt):
    done = run_confined(places, f"import os\ntry:\n    {attempt}\nexcept OSError as error:\n    print(error.errno)")
    assert done.stdout.strip() in {"13", "18"}, done.stderr  # EACCES; EXDEV where a link would cross the border
    assert (places / "theirs" / "verdict.json").read_text(encoding="utf-8") == "pass"
    assert sorted(path.name for path in (places / "theirs").iterdir()) == ["verdict.json"]


def test_a_link_that_leads_out_does_not_help(places):
    (places / "mine" / "out").symlink_to(places / "theirs")
    done = run_confined(places, "open('mine/out/verdict.json', 'w')")
    assert "PermissionError" in done.stderr
    assert (places / "theirs" / "verdict.json").read_text(encoding="utf-8") == "pass"


def test_its_own_folder_devices_and_shared_memory_stay_usable(places):
    code = """
    import os, tempfile
    from multiprocessing import shared_memory
    os.makedirs("mine/a/b")
    with open("mine/a/b/file", "w") as file:
        file.write("text")
    os.rename("mine/a/b/file", "mine/file")
    with open("/dev/null", "w") as nothing:
        nothing.write("text")
    with open("/proc/self/clear_refs", "w") as peak_of_memory:
        peak_of_memory.write("5")
    memory = shared_memory.SharedMemory(create=True, size=16)
    memory.close()
    memory.unlink()
    print(open("theirs/verdict.json").read())
    """
    done = run_confined(places, code)
    assert done.stdout.strip() == "pass", done.stderr


def test_what_it_starts_is_confined_too(places):
    code = """
    import subprocess
    subprocess.run(["/bin/sh", "-c", "(setsid /bin/sh -c 'echo fail > theirs/verdict.json') ; true"])
    """
    run_confined(places, code)
    assert (places / "theirs" / "verdict.json").read_text(encoding="utf-8") == "pass"


def test_the_environment_of_who_started_it_cannot_be_read(places):
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, env={"GITHUB_TOKEN": "secret"}
    )
    try:
        done = run_confined(places, f"print(open('/proc/{holder.pid}/environ').read())")
    finally:
        holder.communicate()
    assert "PermissionError" in done.stderr
    assert "secret" not in done.stdout


def test_who_started_it_cannot_be_sent_signals_where_the_kernel_can_forbid_it(places):
    from perfguard.runner.process.launcher import confinement_version

    if confinement_version() < 6:
        pytest.skip("this kernel's Landlock knows no signals (version 6)")
    done = run_confined(places, f"import os\nos.kill({os.getpid()}, 0)")
    assert "PermissionError" in done.stderr


def test_a_folder_that_does_not_exist_is_an_error_and_nothing_is_started(places):
    done = subprocess.run(
        launched([sys.executable, "-c", "print('started')"], sandbox=Sandbox(writable=(str(places / "missing"),))),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "started" not in done.stdout
    assert "missing" in done.stderr
