"""What has to stand before anything is measured: the peers' environments, the spins, the variants, asv's project."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.proof.gates_against_peers.making import make
from tests.proof.gates_against_peers.pinning import arm_environment, measured_cpus, run
from tests.proof.gates_against_peers.places import (
    ASV_PLACE,
    ASV_VENV,
    CONSTRAINTS,
    HERE,
    SPINS,
    STATE,
    SUITES_VENV,
    TEMPLATE,
    VICTIM_REPOSITORY,
    python_of,
)
from tests.proof.gates_against_peers.variants import CASES

_SUITES = ("torch==2.13.0", "numpy", "pyperf", "pytest", "pytest-benchmark")
_ASV = ("asv", "virtualenv")
_PROCESSES, _SAMPLES = 5, 20


def prepare(say: object = print, *, spins: bool = True) -> None:
    """Install, calibrate and make whatever is missing; the variants are always made anew."""
    STATE.mkdir(parents=True, exist_ok=True)
    say("environments of the peers")
    environment(SUITES_VENV, _SUITES)
    environment(ASV_VENV, _ASV)
    if spins and not SPINS.is_file():
        say("calibrating the spins, alone")
        write_spins()
    say("the victim and its variants")
    make(spins_s())
    asv_project()


def environment(place: Path, packages: Sequence[str]) -> None:
    """A virtual environment with the pinned packages; nothing happens where it is ready.

    Raises:
        SystemExit: pip could not install them; with its last words.
    """
    ready = place / "ready"
    wanted = "\n".join((*packages, CONSTRAINTS.read_text(encoding="utf-8")))
    if ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    command = [str(python_of(place)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "-c", str(CONSTRAINTS), *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pip could not install {', '.join(packages)} into {place}: {done.stderr[-800:]}")
    ready.write_text(wanted, encoding="utf-8")


def probe(tree: Path, cases: Sequence[str], *, samples: int, cpus: Sequence[int], extra: Mapping[str, str]) -> dict:
    """Seconds of an iteration of some cases, in a fresh pinned process.

    Raises:
        RuntimeError: The process failed.
    """
    done = run(
        [str(python_of(SUITES_VENV)), str(HERE / "timing_probe.py"), str(tree), str(samples), *cases],
        cwd=tree,
        environment=arm_environment(cpus, extra),
        cpus=cpus,
        timeout_s=600,
    )
    if done.code != 0:
        raise RuntimeError(f"timing {', '.join(cases)} in {tree} failed: {done.stderr[-800:]}")
    return json.loads(done.stdout)


def write_spins() -> None:
    """Measure how long an iteration of each case takes, in fresh processes, with nothing else of the proof running."""
    medians: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(_PROCESSES):
        timed = probe(TEMPLATE, CASES, samples=_SAMPLES, cpus=measured_cpus(1), extra={})
        for case in CASES:
            medians[case].append(statistics.median(timed[case]["cpu_s"]))
    SPINS.parent.mkdir(parents=True, exist_ok=True)
    SPINS.write_text(json.dumps({case: statistics.median(values) for case, values in medians.items()}, indent=1))


def spins_s() -> dict[str, float]:
    """Calibrated seconds of an iteration, by case.

    Raises:
        SystemExit: They were not calibrated yet.
    """
    if not SPINS.is_file():
        raise SystemExit("the spins are not calibrated yet; run the sub-command `prepare` first")
    return json.loads(SPINS.read_text(encoding="utf-8"))


def asv_project() -> None:
    """A directory with asv's configuration and the benchmarks; asv makes its own environment in it."""
    ASV_PLACE.mkdir(parents=True, exist_ok=True)
    shutil.copytree(TEMPLATE / "suites" / "asv_suite", ASV_PLACE / "asv_suite", dirs_exist_ok=True)
    for clone in ASV_PLACE.glob("env/*/project"):  # of commits that `make` may just have replaced
        shutil.rmtree(clone)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    build = "python -m pip wheel --no-deps --no-build-isolation --wheel-dir {build_cache_dir} {build_dir}"
    configuration = {
        "version": 1,
        "project": "victim",
        "repo": str(VICTIM_REPOSITORY),
        "branches": ["base"],
        "environment_type": "virtualenv",
        "pythons": [version],
        "matrix": {"req": {"torch": ["2.13.0"], "numpy": [""], "setuptools": ["84.2.1"], "wheel": [""]}},
        "build_command": [build],
        "install_command": ["in-dir={env_dir} python -m pip install --no-deps --force-reinstall {wheel_file}"],
        "uninstall_command": ["return-code=any python -m pip uninstall -y victim"],
        "benchmark_dir": "asv_suite",
        "env_dir": "env",
        "results_dir": "results",
        "html_dir": "html",
    }
    (ASV_PLACE / "asv.conf.json").write_text(json.dumps(configuration, indent=1), encoding="utf-8")
