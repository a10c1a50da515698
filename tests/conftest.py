"""Fixtures for all levels: what the test machine offers, and small projects to run perfguard in."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

import perfguard
from tests import shared_cpus
from tests.forked_commands import CommandServer

# How long an example takes says nothing of what it shows, and unchanged code is not to fail on another day.
settings.register_profile(
    "perfguard", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("perfguard")

SOURCE = Path(perfguard.__file__).parent.parent
LIMIT_S = 500.0
"""For what must not hang: far beyond what any command of a test takes, and less than a test may take in all."""


def pytest_configure(config):
    """Let processes of tests share this machine."""
    config.pluginmanager.register(shared_cpus)


_MEMORY, _NEEDED_BYTES = Path("/dev/shm"), 8 * 1024**3
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _NEEDED_BYTES:
    # Projects of tests are thousands of small files, which take a third of a test's time on a disk.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

_TESTS = itertools.count()


@pytest.fixture(autouse=True)
def _own_history(monkeypatch):
    """A test that records runs in its own process finds those of no other test."""
    monkeypatch.setenv("PERFGUARD_DATABASE", "off")
    monkeypatch.setenv("XDG_DATA_HOME", f"{os.environ[shared_cpus.SHARED]}/{os.getpid()}-{next(_TESTS)}")


CONFIG = """\
suite = "tiny"
benchmarks = ["bench_*.py"]
sample_s = 0.005
samples = 3
max_blocks = 12
max_block_sd = 0.5

[suites.tiny]
gating = ["tiny.sum", "tiny.sort"]
budget_s = 120
"""

BENCHMARKS = """\
import perfguard
from tiny_work import total, ordered


@perfguard.benchmark(name="tiny.sum", tags=["no-torch"], phase="forward")
def tiny_sum():
    return lambda: float(total())


@perfguard.benchmark(name="tiny.sort", tags=["no-torch"], phase="forward")
def tiny_sort():
    return lambda: float(ordered())
"""

WORK = """\
LENGTH = 20_000


def total():
    return sum(range(LENGTH))


def ordered():
    return sorted(range(8_000, 0, -1))[0]
"""


@dataclass(frozen=True)
class Project:
    """A git repository with a configuration and two benchmarks that need no torch, and a place of its own for locks."""

    path: Path
    environment: dict[str, str]

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, env=self.environment, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def run(self, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        folder, environment = cwd or self.path, {**self.environment, **variables}
        forked = _commands().run(arguments, folder=folder, environment=environment, limit_s=LIMIT_S)
        if forked is not None:
            return forked
        return subprocess.run(
            [sys.executable, "-m", "perfguard", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perfguard", *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A run started in the background of a shell inherits an ignored SIGINT, which Python then leaves ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def result(self, *arguments: str, **variables: str) -> dict:
        """The result of a command as JSON."""
        done = self.run(*arguments, "--format", "json", **variables)
        assert done.stdout, done.stderr
        found: dict = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode
        return found

    def latest_run(self) -> Path:
        return max((self.path / ".perfguard" / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)

    def workers(self) -> list[psutil.Process]:
        """Live processes that were started from this project's run folders."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.path) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@functools.cache
def _commands() -> CommandServer:
    return CommandServer(clean_environment(Path(os.environ["XDG_DATA_HOME"], "commands")))


def clean_environment(home: Path) -> dict[str, str]:
    """The test's own environment without the user's settings; locks and temporary files below `home`."""
    unwanted = ("PERFGUARD_", "GIT_", "PYTHON", "COLUMNS", "LINES")  # the last two are readline's
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "PERFGUARD_DATABASE": "off",  # opening one takes half a second; tests of the history name theirs
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "error",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(home),
    }


def project_in(place: Path) -> Project:
    """A project of two folders below a place; neither is made."""
    return Project(path=place / "project", environment=clean_environment(place / "home"))


@pytest.fixture
def outside_memory():
    """A folder that is not in /dev/shm, which confined code may change."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def empty_project(tmp_path):
    """A directory that holds nothing, outside any repository; whatever a test leaves running there is ended."""
    made = project_in(tmp_path)
    made.path.mkdir()
    yield made
    for process in made.workers():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            process.kill()


@pytest.fixture
def project(empty_project):
    """A committed project with a suite of two small cases."""
    fill(empty_project)
    return empty_project


def fill(project: Project) -> None:
    """Commit a suite of two small cases there."""
    project.write("perfguard.toml", CONFIG)
    project.write("bench_tiny.py", BENCHMARKS)
    project.write("tiny_work.py", WORK)
    project.git("init", "-q", "-b", "main")
    project.commit("start")


@pytest.fixture(scope="session")
def made_project():
    """Makes such a project in a folder, for fixtures that several tests share."""

    def make(folder):
        made = project_in(folder)
        made.path.mkdir()
        fill(made)
        return made

    return make


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory):
    made = project_in(tmp_path_factory.mktemp("recorded"))
    made.path.mkdir()
    fill(made)
    done = made.run("baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit", "--no-progress")
    assert done.returncode == 0, done.stderr
    made.commit("baseline")
    shutil.rmtree(made.path / ".perfguard")
    return made.path


@pytest.fixture
def project_with_baseline(_recorded, tmp_path):
    """A project whose stored baseline of this machine is committed."""
    shutil.copytree(_recorded, tmp_path / "project")
    return project_in(tmp_path)


@pytest.fixture
def deep_folders():
    """Makes a folder of folders in folders, deeper than Python recurses; removed in the end."""
    made = []

    def make(folder):
        folder.mkdir(parents=True)
        made.append(folder)
        descriptor = os.open(folder, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=descriptor)
            below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        os.close(descriptor)

    yield make
    for folder in made:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=True)
