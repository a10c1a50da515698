"""What a tuning has measured, kept so that it can be killed at any moment: `.perfguard/tune/<key>.jsonl`.

The first line says what the outcomes depend on; then come the findings of the profile and a line for each trial.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from perfguard.codec import from_builtins, to_builtins, to_json
from perfguard.errors import StoreError
from perfguard.records.tuning import TUNING_SCHEMA, Purpose, Setting, ToggleHint, Trial, TriedTrial, TuningNow
from perfguard.store.files import write_text

KEPT_IN = Path(".perfguard") / "tune"  # Folder of the journals, in a project
_LONGER = 2.0  # A trial without an answer is measured again where it is given so many times as long


class Journal(Struct):
    """The file and its content."""

    path: Path
    hints: tuple[ToggleHint, ...] | None = None  # None where nothing was profiled yet
    profile_s: float = 0.0  # Wall seconds of the profile
    trials: dict[tuple[Purpose, Setting, Setting], TriedTrial] = field(default_factory=dict)

    def known(self, trial: Trial, budget_s: float) -> TriedTrial | None:
        """A trial that was measured before; not one that the end of a much smaller budget left open."""
        tried = self.trials.get((trial.purpose, trial.before, trial.after))
        if tried is None or (tried.outcome.is_cut_short and budget_s >= _LONGER * tried.budget_s):
            return None
        return tried

    def keep_hints(self, hints: Sequence[ToggleHint], profile_s: float) -> None:
        """Write what the profile found, and how long it took. Raises StoreError: it cannot be written."""
        self.hints, self.profile_s = tuple(hints), profile_s
        self._append({"hints": to_builtins(self.hints), "profile_s": profile_s})

    def keep(self, tried: TriedTrial) -> None:
        """Write a trial, safe from a crash once this returns. Raises StoreError: it cannot be written."""
        self.trials[tried.trial.purpose, tried.trial.before, tried.trial.after] = tried
        self._append({"trial": to_builtins(tried)})

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        try:
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error


def open_journal(folder: Path, scope: Mapping[str, object], *, is_fresh: bool = False) -> Journal:
    """The journal for what outcomes depend on: case, code, machine, software, settings; begun where there is none.

    A line that a crash cut off is dropped. A fresh one forgets what an earlier one kept.

    Raises:
        StoreError: It cannot be read or written, or holds something else.
    """
    head = to_json({"schema": TUNING_SCHEMA, "scope": scope})
    path = folder / f"{hashlib.sha256(head.encode()).hexdigest()[:16]}.jsonl"
    journal, whole, is_cut_off = (Journal(path=path), [], False) if is_fresh else _read(path)
    if not whole or is_cut_off:
        write_text(path, "\n".join(whole or [head]) + "\n")
    return journal


def newest_tuning(folder: Path) -> TuningNow | None:
    """What the journal that was written last holds; None where there is none.

    Raises:
        StoreError: It cannot be read, or holds something else.
    """
    found = [(path.stat().st_mtime, path) for path in folder.glob("*.jsonl")]
    if not found:
        return None
    changed_at, path = max(found)
    journal, whole, _ = _read(path)
    return TuningNow(
        target=_target_of(whole[0], path) if whole else "",
        changed_at=changed_at,
        hints=journal.hints or (),
        trials=tuple(journal.trials.values()),
    )


def _read(path: Path) -> tuple[Journal, list[str], bool]:
    """A journal, its whole lines, and whether the last one was cut off; empty where there is no file."""
    journal = Journal(path=path)
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return journal, [], False
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}; begin again with --fresh") from error
    whole = [line.decode(errors="replace") for line in lines]
    for number, line in enumerate(whole[1:], 2):
        _take(journal, line, f"{path}:{number}")
    return journal, whole, bool(rest)


def _target_of(head: str, path: Path) -> str:
    """The case or the script of a journal, by its first line."""
    try:
        scope = json.loads(head)["scope"]
        return str(scope.get("script") or scope["cases"][0])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise StoreError(f"{path}:1 is corrupt ({error}); begin again with --fresh") from error


def _take(journal: Journal, line: str, source: str) -> None:
    try:
        entry = json.loads(line)
        if "hints" in entry:
            journal.hints = from_builtins(entry["hints"], tuple[ToggleHint, ...], source="it")
            journal.profile_s = from_builtins(entry["profile_s"], float, source="it")
        else:
            tried = from_builtins(entry["trial"], TriedTrial, source="it")
            journal.trials[tried.trial.purpose, tried.trial.before, tried.trial.after] = tried
    except (ValueError, KeyError, TypeError, StoreError) as error:
        raise StoreError(f"{source} is corrupt ({error}); begin again with --fresh") from error
