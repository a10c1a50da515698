"""`fingerprint` and `doctor`: what this machine is, and whether it is fit to be measured on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from perfguard.codec import from_builtins
from perfguard.config import LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.host.checks import run_checks
from perfguard.host.identity import match
from perfguard.host.probe import probe, query_software
from perfguard.recordings import upgraded
from perfguard.records.machine.fingerprint import CheckResult, Compatibility, Fingerprint
from perfguard.runner.arms.environment import base_environment
from perfguard.runner.arms.resolve import glibc_version
from perfguard.runner.session import choose_cpus


def fingerprint_of(root: Path | None, *, python: str | None, ask_software: bool) -> Fingerprint:
    """The fingerprint of this machine, or of a recorded one, which has no software stack.

    Raises:
        UsageError: The root does not exist, or a recorded machine was asked for its interpreter.
        FingerprintError: The root holds no machine.
    """
    if root is not None:
        if python is not None:
            raise UsageError("--root shows a recorded machine, which has no interpreter to ask; drop --python")
        return probe(root)
    software = query_software(Path(python or sys.executable)) if ask_software else None
    return probe(software=software)


def match_file(fingerprint: Fingerprint, path: Path) -> Compatibility:
    """Whether timings of this fingerprint and of one in a JSON file may be compared.

    Raises:
        StoreError: The file is missing or holds no fingerprint.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} is not a fingerprint ({error}); make one with `perfguard fingerprint --json`"
        ) from error
    return match(from_builtins(upgraded(data, Fingerprint), Fingerprint, source=str(path)), fingerprint)


def check_host(loaded: LoadedConfig, fingerprint: Fingerprint | None = None) -> tuple[CheckResult, ...]:
    """One row for each source of noise, for the CPUs and the environment that a run would use.

    Raises:
        UsageError: The configured CPUs cannot be used.
    """
    fingerprint = fingerprint or probe()
    selection = choose_cpus(loaded, fingerprint)
    environment = base_environment(
        os.environ, profile=loaded.config.env_profile, threads=selection.threads, glibc=glibc_version()
    )
    return run_checks(fingerprint, environment=environment, threads=selection.threads, cpus=selection.cpus)
