"""What was measured where, with which versions, and how busy the machine was."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

import perfguard
from perfguard.host.probe import probe
from tests.proof.gates_against_peers.places import ASV_VENV, REPOSITORY, SUITES_VENV, python_of

_VERSIONS = (
    "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in "
    "('torch', 'numpy', 'pyperf', 'pytest-benchmark', 'asv') if n in {d.metadata['Name'] for d in m.distributions()}}))"
)


def identity() -> dict[str, Any]:
    """Machine, versions and commit, for the head of a report."""
    fingerprint = probe()
    return {
        "machine_id": fingerprint.machine_id,
        "cpu": fingerprint.cpu.brand,
        "microarchitecture": fingerprint.cpu.microarchitecture,
        "hypervisor": fingerprint.cpu.hypervisor_name or ("unnamed" if fingerprint.cpu.hypervisor else None),
        "cores": fingerprint.topology.cores,
        "kernel": os.uname().release,
        "perfguard": perfguard.__version__,
        "commit": commit(),
        "suites": _versions(SUITES_VENV),
        "asv": _versions(ASV_VENV).get("asv"),
    }


def moment() -> dict[str, Any]:
    """When, and how busy the machine was: kept beside every gate."""
    return {"at": time.time(), "load_1min": os.getloadavg()[0]}


def commit() -> str:
    """The present commit of perfguard, with a `+` where files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "--", "perfguard") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _versions(venv: Any) -> dict[str, str]:
    if not python_of(venv).is_file():
        return {}
    done = subprocess.run([str(python_of(venv)), "-c", _VERSIONS], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}
