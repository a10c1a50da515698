"""How code that is not trusted is held: by bubblewrap where it works, else by Landlock, which holds less.

bubblewrap gives it user, PID, IPC, network and mount namespaces of its own: it sees the system read-only, no home, no
repository but its own tree, and no process but its own; what it leaves running ends with it. Landlock keeps it from
changing files alone.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from perfguard.errors import HostUnfitError
from perfguard.records.plan import Sandbox
from perfguard.runner.process.launcher import confinement_version

_HIDDEN = ("/home", "/root", "/run", "/var/spool", "/var/lib/docker", "/etc/ssh", "/etc/ssl/private", "/etc/docker",
           "/etc/kubernetes", "/etc/sudoers.d")  # fmt: skip
"""Folders of users, of credentials, and of sockets by which other programs are asked to act."""
_HIDDEN_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers", "/etc/netrc")
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each sandbox gets its own, in memory
_OWN_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_SHARE_OF_MEMORY = 4  # Each temporary folder may take a quarter of it
_TRIAL_S = 20.0
_ASK = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix]))"


class Holder(str, Enum):
    """What holds code that is not trusted."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"


@functools.cache
def holder() -> Holder | None:
    """The best that works on this machine; None where nothing does."""
    if _bubblewrap() is not None and _works():
        return Holder.BUBBLEWRAP
    return Holder.LANDLOCK if confinement_version() > 0 else None


def require_holder(*, strict: bool) -> Holder:
    """What holds code that is not trusted here.

    Raises:
        HostUnfitError: Nothing does, or with `strict`, bubblewrap does not.
    """
    found = holder()
    if found is Holder.BUBBLEWRAP or (found is not None and not strict):
        return found
    fails = "cannot make its namespaces (try `bwrap --ro-bind / / --unshare-user true`)"
    missing = "is not installed" if _bubblewrap() is None else fails
    if found is not None:
        raise HostUnfitError(
            f"--confine strict: bubblewrap {missing}, and Landlock lets measured code read files, use the network and "
            "leave processes; install the package bubblewrap, or use --confine"
        )
    raise HostUnfitError(
        f"measured code cannot be confined: bubblewrap {missing}, and this kernel has no Landlock (Linux 5.13 or "
        "later, switched on); install the package bubblewrap, drop --confine, or measure on another host"
    )


def bubblewrapped(command: Sequence[str], sandbox: Sandbox) -> list[str]:
    """The command that runs another one in a sandbox; both begin with an absolute path."""
    program = _bubblewrap()
    assert program is not None  # noqa: S101 - who asks knows that it is there
    network = () if sandbox.network else ("--unshare-net",)
    fixed = (*_OWN_NAMESPACES, *network, "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    return [program, *fixed, *_mounts(sandbox), "--", *command]


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python that the user has chosen."""

    executable: str  # The program itself, where what was chosen is a script that starts it
    folders: tuple[str, ...]  # What it needs: its environment, and the installation that this is made from


@functools.cache
def interpreter_of(chosen: str) -> Interpreter:
    """What a chosen program says of itself. It is run without a sandbox, so it must be the user's choice."""
    folders = [Path(chosen).parent.parent, Path(chosen).resolve().parent.parent]
    try:
        done = subprocess.run([chosen, "-I", "-c", _ASK], capture_output=True, text=True, timeout=_TRIAL_S, check=True)
        executable, *prefixes = json.loads(done.stdout)
        folders = [*map(Path, prefixes), Path(executable).parent.parent, Path(executable).resolve().parent.parent]
    except (OSError, subprocess.SubprocessError, ValueError):
        executable = chosen
    return Interpreter(
        executable=executable, folders=tuple(dict.fromkeys(str(each) for each in folders if each != Path("/")))
    )


def _mounts(sandbox: Sandbox) -> Iterator[str]:
    """Options of bubblewrap, in the order in which they take effect."""
    temporary_bytes = str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE_OF_MEMORY)
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    temporary = [place for place in _TEMPORARY if Path(place).is_dir() and not Path(place).is_symlink()]
    for place in temporary:
        yield from ("--size", temporary_bytes, "--tmpfs", place)
    hidden = _outermost([*_HIDDEN, str(Path.home()), *sandbox.hidden])
    for place in hidden:
        yield from ("--tmpfs", place)
    for file in _HIDDEN_FILES:
        if Path(file).exists():
            yield from ("--ro-bind", "/dev/null", file)
    empty, private = [*hidden, *temporary], dict[str, None]()
    for option, places in (("--ro-bind", sandbox.readable), ("--bind", sandbox.writable)):
        for place in sorted(places):
            yield from _bound(option, place, empty)
            for own in _private_folders(place):
                private[own] = None
                yield from ("--tmpfs", own)
    for place in (*hidden, *private):
        yield from ("--remount-ro", place)


def _private_folders(place: str) -> Iterator[str]:
    """What a folder that may be seen holds of git's and perfguard's own."""
    for own in (".git", ".perfguard"):
        if (path := Path(place).resolve() / own).is_dir() and not path.is_symlink():
            yield str(path)


def _bound(option: str, place: str, empty: Sequence[str]) -> Iterator[str]:
    """A folder at its own place, and where a link in an emptied folder led to it, there as well."""
    path, real = Path(place), Path(place).resolve()
    yield from (option, str(real), str(real))
    if path != real and any(path.is_relative_to(other) for other in empty):
        yield from (option, str(real), place)


def _outermost(places: Sequence[str]) -> list[str]:
    """The folders that exist, without those that lie in another one."""
    found: list[Path] = []
    for path in sorted({Path(place).resolve() for place in places}):
        if path.is_dir() and path != Path("/") and not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return [str(path) for path in found]


def _bubblewrap() -> str | None:
    found = shutil.which("bwrap")
    return str(Path(found).resolve()) if found is not None else None


def _works() -> bool:
    """Whether this kernel and its rules let bubblewrap make its namespaces."""
    command = bubblewrapped(["/bin/sh", "-c", ":"], Sandbox())
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TRIAL_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
