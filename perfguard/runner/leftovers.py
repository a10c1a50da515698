"""What runs that were killed have left behind: checkouts, bundles, and git's entries of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from perfguard.errors import PerfguardError
from perfguard.runner.arms import git
from perfguard.runner.arms.resolve import clean_workshop
from perfguard.runner.run_folder import EVENTS

WORKSHOPS = "arms*/"  # Folders of a run with its arms' bundles and checkouts, which end with it
POLICIES = Path(".perfguard") / "policy"  # Checkouts of rules, named by commit and process id


def clear_leftovers(project: Path, *, own: Path) -> None:
    """Remove them; the run in the folder `own`, and all others that go on, keep what they have."""
    for workshop in (project / ".perfguard" / "runs").glob(f"*/{WORKSHOPS}"):
        if workshop.parent != own and not workshop.parent.is_symlink() and not goes_on(workshop.parent):
            clean_workshop(workshop, project)
    repository = git.top_level(project)
    for checkout in (repository / POLICIES).glob("*-*/") if repository is not None else ():
        process = checkout.name.rpartition("-")[2]
        if repository is not None and process.isdigit() and not Path(f"/proc/{process}").exists():
            with contextlib.suppress(PerfguardError):
                git.remove_worktree(repository, checkout)


def goes_on(run: Path) -> bool:
    """Whether a process holds the events of the run in a folder; the kernel lets go when it dies, however it dies."""
    try:
        descriptor = os.open(run / EVENTS, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
