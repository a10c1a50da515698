"""Fixtures for all levels: what the test machine offers, and small projects to run perfguard in."""

from __future__ import annotations

import compileall
import contextlib
import functools
import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

import perfguard
from perfguard.host.placement import select_cpus
from perfguard.host.probe import probe

# How long an example takes says nothing of what it shows, and unchanged code is not to fail on another day.
settings.register_profile(
    "perfguard", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("perfguard")

SOURCE = Path(perfguard.__file__).parent.parent
LIMIT_S = 500.0
"""For what must not hang: far beyond what any command of a test takes, and less than a test may take in all."""
MEASURING = "tests/measuring/"
"""The folder of tests whose answers hang on times: they follow each other, with a CPU that nothing else is on."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share out files among processes, and all that hangs on times to one of them.

    `--dist loadgroup` would do, but pytest-xdist 3.8 with pytest 9.2 does not see the groups.
    """
    from xdist.scheduler import LoadScopeScheduling

    class MeasuringInOneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "measuring" if nodeid.startswith(MEASURING) else nodeid.partition("::")[0]

    return MeasuringInOneProcess(config, log)


_MEMORY, _NEEDED_BYTES = Path("/dev/shm"), 8 * 1024**3
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _NEEDED_BYTES:
    # Projects of tests are thousands of small files, which take a third of a test's time on a disk.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

_COVERING = (
    "tests/unit/gate/",
    "tests/unit/stats/",
    "tests/unit/worker/",
    "tests/e2e/test_showing_runs.py",
    "tests/measuring/test_allow_command.py",
    "tests/measuring/test_baselines_of_projects.py",
    "tests/measuring/test_comparing_trees.py",
    "tests/measuring/test_drifting_from_an_anchor.py",
)
"""Tests whose coverage is measured: others run hardly anything of `gate` and `stats` beside, and longer if traced."""
_TRACED = "COVERAGE_PROCESS_CONFIG"
"""What makes each Python process of a test measure its coverage, too."""


def pytest_sessionstart(session):
    """Compile perfguard once: the processes that tests start write no byte code, and would compile it each time."""
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(SOURCE / "perfguard", quiet=2)
        os.environ[_SHARED] = tempfile.mkdtemp()
    # Nothing that runs in a test's own process comes near the user's history.
    os.environ["XDG_DATA_HOME"] = f"{os.environ[_SHARED]}/{os.getpid()}"


def pytest_sessionfinish(session):
    """Remove what the processes of the session shared."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(os.environ.pop(_SHARED), ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Begin with what measures, the longest chain."""
    items.sort(key=lambda item: not item.nodeid.startswith(MEASURING))


def pytest_collection_finish():
    """Freeze what is imported: torch and the tests are half a million objects, which each collection looks through."""
    gc.collect()
    gc.freeze()


@functools.cache
def _measured(available):
    return select_cpus(probe(), cpus=None, threads=None, numa=None, available=available).cpus


def _will_measure(session):
    if _WILL_MEASURE not in session.stash:
        session.stash[_WILL_MEASURE] = any(item.nodeid.startswith(MEASURING) for item in session.items)
    return session.stash[_WILL_MEASURE]


_WILL_MEASURE = pytest.StashKey[bool]()
_BEHIND_GATES = 10
"""Niceness of processes that test beside gates, for good: what gates do on their CPU, the longest chain, waits less."""
_TESTS = itertools.count()
_SHARED = "FOLDER_OF_TEST_PROCESSES"
"""The variable that names a folder in which one process tells the others that all is measured."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Keep every other test off the CPUs that gates measure on until they have, if they leave any."""
    everywhere, is_measured = os.sched_getaffinity(0), Path(os.environ[_SHARED], "measured")
    measures = item.nodeid.startswith(MEASURING)
    if not measures and item.get_closest_marker("two_cpus") is None and not is_measured.exists():
        measured = set(_measured(frozenset(everywhere))) if _will_measure(item.session) else set()
        os.sched_setaffinity(0, everywhere - measured or everywhere)
        if measured and not os.nice(0):
            os.nice(_BEHIND_GATES)
    _fit_threads()
    try:
        with contextlib.nullcontext() if item.nodeid.startswith(_COVERING) else _untraced():
            return (yield)
    finally:
        os.sched_setaffinity(0, everywhere)
        if measures and (nextitem is None or not nextitem.nodeid.startswith(MEASURING)):
            is_measured.touch()


@contextlib.contextmanager
def _untraced():
    """Measure no coverage while entered, in this process and those that it starts.

    The marker `no_cover` does not do it: a worker of pytest-xdist has two measurements by pytest-cov 7, and the marker
    stops one of them. Tests that compute took four times as long.
    """
    own, of_threads, of_processes = sys.gettrace(), threading.gettrace(), os.environ.pop(_TRACED, None)
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        if of_processes is not None:
            os.environ[_TRACED] = of_processes
        threading.settrace(of_threads)
        sys.settrace(own)


def _fit_threads():
    """Give torch one thread, where this process has imported it: of several, all but one would wait and spin.

    Three processes test on two CPUs; a training step took five times its CPU time.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_history(monkeypatch):
    """A test that records runs in its own process finds those of no other test."""
    monkeypatch.setenv("PERFGUARD_DATABASE", "off")
    monkeypatch.setenv("XDG_DATA_HOME", f"{os.environ[_SHARED]}/{os.getpid()}-{next(_TESTS)}")


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
        return subprocess.run(
            [sys.executable, "-m", "perfguard", *arguments],
            cwd=cwd or self.path,
            env={**self.environment, **variables},
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
