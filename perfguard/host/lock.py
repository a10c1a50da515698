"""One run per host at a time: two measurements at once would time each other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from perfguard.errors import HostUnfitError
from perfguard.units import printable

_LOOK_S = 1.0  # How often a waiting run looks
_LONGEST_COMMAND = 40
_SAY_S = 60.0  # How often it says that it still waits


def lock_path() -> Path:
    """The host's lock file, shared by all users."""
    return Path(tempfile.gettempdir()) / "perfguard-host.lock"


@contextlib.contextmanager
def host_lock(
    path: Path | None = None, *, command: str = "run", waiting: Callable[[str, float], None] | None = None
) -> Iterator[None]:
    """Hold the host for the duration of a run; `command` names the run in messages of those that it keeps waiting.

    The kernel frees the lock when its owner dies, however it dies, so a file left behind is never taken for a run.
    With `waiting` it waits while another run holds the lock; `waiting` is called with each new owner and then once a
    minute, with the seconds waited so far.

    Raises:
        HostUnfitError: Another run holds it, named by pid and start; or the file cannot be opened.
    """
    path = path or lock_path()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        # Linux refuses O_CREAT on another user's file in a sticky directory, but not a plain open.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise HostUnfitError(f"{path} cannot be opened: {error.strerror}") from error
    except OSError as error:
        raise HostUnfitError(f"{path} cannot be opened: {error.strerror}; set TMPDIR to a writable place") from error
    try:
        _take(descriptor, path, command, waiting)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, command: str, waiting: Callable[[str, float], None] | None) -> None:
    known, began, said = None, time.monotonic(), 0.0
    while not _is_taken(descriptor):
        owner = _owner(path)
        if waiting is None:
            raise HostUnfitError(
                f"another run is measuring on this host ({owner}), and two at once would time each other; "
                "wait for it: --wait, or PERFGUARD_WAIT=true for any command"
            )
        now = time.monotonic()
        if owner != known or now - said >= _SAY_S:
            waiting(owner, float(round(now - began)))
            known, said = owner, now
        time.sleep(_LOOK_S)
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        own = {"pid": os.getpid(), "command": command, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        os.pwrite(descriptor, json.dumps(own).encode(), 0)


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        command = printable(str(owner.get("command", "run")))[:_LONGEST_COMMAND]
        return f"perfguard {command}, pid {int(owner['pid'])}, since {printable(str(owner['started']))}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "owner unknown"
