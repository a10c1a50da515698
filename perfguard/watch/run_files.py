"""The files beside a run's events, as its readers want them; None where one is missing or is not what it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from perfguard.codec import from_builtins, upgraded, with_nan
from perfguard.errors import StoreError
from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint
from perfguard.records.steps.ops import Attribution
from perfguard.watch.sources.event_sources import read_beside

T = TypeVar("T")
ReadFile = Callable[[str], "bytes | None"]
"""Gives a file of a run's folder by its name."""


def host_of(folder: Path) -> Fingerprint | None:
    """The machine and the candidate's software; None until the arms were looked at."""
    return read_fingerprint(lambda name: read_beside(folder, name))


def selection_of(folder: Path) -> CpuSelection | None:
    """Where the run is pinned; None until its first block."""
    return read_selection(lambda name: read_beside(folder, name))


def read_fingerprint(read: ReadFile) -> Fingerprint | None:
    """The run's `fingerprint.json`."""
    return _decoded(_parsed(read("fingerprint.json")), Fingerprint)


def read_selection(read: ReadFile) -> CpuSelection | None:
    """The CPUs in the run's `plan.json`."""
    plan = _parsed(read("plan.json"))
    return _decoded(plan.get("cpus"), CpuSelection) if isinstance(plan, dict) else None


def read_planned_rounds(read: ReadFile) -> int | None:
    """The most blocks or rounds that the run's `plan.json` allows."""
    plan = _parsed(read("plan.json"))
    settings = plan.get("settings") if isinstance(plan, dict) else None
    rounds = settings.get("max_blocks") if isinstance(settings, dict) else None
    return rounds if isinstance(rounds, int) and rounds > 0 else None


def read_attribution(read: ReadFile, name: str) -> Attribution | None:
    """All differences of a case's ops, from the file that its event names."""
    return _decoded(with_nan(_parsed(read(name)), Attribution), Attribution)


def _parsed(content: bytes | None) -> object:
    if content is None:
        return None
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):  # cut, or no JSON
        return None
    return found


def _decoded(data: object, kind: type[T]) -> T | None:
    if data is None:
        return None
    try:
        return from_builtins(upgraded(data, kind), kind, source="a file of the run")
    except StoreError:
        return None
