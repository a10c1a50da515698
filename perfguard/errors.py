"""Every error that perfguard raises on purpose, and the exit code that each one fixes.

```
PerfguardError                3  infrastructure or internal
├── UsageError                2  what was asked makes no sense
│   ├── ConfigError           2  perfguard.toml, pyproject.toml or an option
│   └── ArmError              2  --baseline / --candidate cannot be resolved
├── NothingSelectedError      5  no case matches
│   └── NoRulesYetError       5  the base of a change has no settings yet, the change brings the first
├── FingerprintError          3  a machine tree that cannot be read at all
├── HostUnfitError            3  the host cannot be measured on (busy, read-only, full, locked)
├── MeasurementError          3  workers could not be started or gave nothing usable
│   └── BelowTargetError      3  a result is not good enough, in a worker; a gate is red for it
├── StoreError                3  a baseline or run folder is corrupt or missing
├── DatabaseError             3  the history's database cannot be reached, read or written
│   ├── DatabaseVersionError  3  its tables are of another version
│   └── RefusedDataError      3  it takes some values into no column
└── InterruptedRunError     130  Ctrl-C; what was measured is kept
```
A message says what failed, the value or path, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line; documented in the README and stable."""

    PASS = 0
    REGRESSION = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INCONCLUSIVE = 4
    NOTHING_SELECTED = 5
    INTERRUPTED = 130


_LONGEST_MESSAGE = 4_000  # Characters; what a broken file holds may be much longer


class PerfguardError(Exception):
    """Base of all errors with a message for the user."""

    exit_code: ExitCode = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str = "") -> None:
        """Say what failed; a message beyond all measure is cut."""
        super().__init__(message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} …")


class UsageError(PerfguardError):
    """The request itself is wrong."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """A configuration file or option holds something unknown or impossible."""


class ArmError(UsageError):
    """An arm (`--baseline`, `--candidate`) cannot be resolved."""


class NothingSelectedError(PerfguardError):
    """The selection matches no case."""

    exit_code = ExitCode.NOTHING_SELECTED


class NoRulesYetError(NothingSelectedError):
    """The base of a change has no settings of perfguard; the change brings the first."""


class FingerprintError(PerfguardError):
    """The machine tree cannot be read at all."""


class HostUnfitError(PerfguardError):
    """The host is not fit to be measured on now."""


class MeasurementError(PerfguardError):
    """Workers could not be started, or nothing usable was measured."""


class BelowTargetError(MeasurementError):
    """A result is not good enough, so the speed it was computed at does not count."""


class StoreError(PerfguardError):
    """A stored file is missing, corrupt or of another schema."""


class DatabaseError(PerfguardError):
    """The history's database cannot be reached, read or written."""


class DatabaseVersionError(DatabaseError):
    """The database's tables are of another version."""


class RefusedDataError(DatabaseError):
    """The database works, but takes some values into no column: a number too large, a text with a null character."""


class InterruptedRunError(PerfguardError):
    """The user interrupted the run; what was measured is kept."""

    exit_code = ExitCode.INTERRUPTED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'digits'? ` for a name that is nearly a known one, else nothing."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
