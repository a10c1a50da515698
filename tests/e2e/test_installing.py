"""Wheel and sdist as `pip install` gets them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.tiny_projects import facts, verdicts

pytest.importorskip("hatchling")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(REPOSITORY)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh venv with the wheel; what it depends on is borrowed from this environment."""
    home = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    wheel = next(distributions.glob("*.whl"))
    subprocess.run(
        [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True
    )
    packages = next((home / "lib").glob("python*")) / "site-packages"
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_wheel_holds_what_the_program_reads_at_run_time(distributions: Path) -> None:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    for name in (
        "perfguard/py.typed",
        "perfguard/runner/process/launcher.py",
        "perfguard/runner/arms/constraints-ipex.txt",
        "perfguard/worker/start.py",
        "perfguard/schemas/result.schema.json",
        "perfguard/templates/perf_first_step.py.in",
        "perfguard/templates/workflows/perf.yml",
    ):
        assert name in names
    assert not any(name.startswith(("tests/", "baselines/")) for name in names)


def test_the_same_sources_give_the_same_files_anywhere(distributions: Path, tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, capture_output=True
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout, so its sources cannot be listed")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_bytes((REPOSITORY / name).read_bytes())
            (tmp_path / "copy" / name).chmod((REPOSITORY / name).stat().st_mode & 0o100 | 0o600)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(tmp_path / "copy")]
    done = subprocess.run(build, capture_output=True, text=True, umask=0o077)
    assert done.returncode == 0, done.stdout + done.stderr
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in distributions.iterdir()}
    assert sums == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in sums}


def test_the_sdist_holds_sources_tests_and_licence(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "perfguard/__init__.py", "tests/conftest.py"} <= names


def test_the_installed_command_line_runs_a_gate_without_the_repository(installed: Path, project) -> None:
    perfguard = installed / "bin" / "perfguard"
    environment = {key: value for key, value in project.environment.items() if key != "PYTHONPATH"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(perfguard), *arguments], cwd=project.path, env=environment, capture_output=True, text=True
        )

    where = subprocess.run(
        [str(installed / "bin" / "python"), "-c", "import perfguard; print(perfguard.__file__)"],
        env={**os.environ, "PYTHONPATH": ""},
        cwd=project.path,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(installed))
    assert "gate" in run("--help").stdout
    listed = run("list")
    assert "tiny.sum" in listed.stdout, listed.stderr
    gate = run("gate", "--measure-anyway", "--max-blocks", "2", "--no-progress", "--format", "json")
    assert gate.returncode == 0, gate.stdout + gate.stderr  # nothing was changed, and the arms hash identical
    result = json.loads(gate.stdout)
    assert (result["gate"]["identical"], result["gate"]["blocks_total"]) == (True, 2)
    assert all(facts(verdict, "verdict.too_few_blocks") for verdict in verdicts(result).values())
