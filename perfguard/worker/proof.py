"""Which code of an arm's trees a case runs, and which of their files it reads.

A case is set up and called in a process of its own, forked before anything of the trees is imported. There every code
object that is executed is recorded: functions, and the bodies of modules and classes. Equal records of two arms prove
that the change between them is not in what the case runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from perfguard.records.protocol import Message
from perfguard.worker.attest import holds, imported_files
from perfguard.worker.cases import prepare_case
from perfguard.worker.profiling.compile_events import CompileEvents

CALLS = 3
"""Of the case, the set-up's own included: what happens at every hundredth call only is not seen."""
_MOST_RECORDS = 30_000
_IMPORTLIB = "<frozen importlib._bootstrap_external>"
_STARTS_PROCESSES = frozenset(
    ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn")
)
_SPAWNING = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")  # Start processes without a word
_WATCHED = _STARTS_PROCESSES | {"sys.setprofile", "ctypes.dlopen", "open", "os.listdir", "os.scandir"}


def prove(case: Mapping[str, Any], *, seed: int, roots: Sequence[str]) -> Message:
    """What a case executes and reads of the trees at `roots`, absolute paths, in a process of its own.

    Returns:
        `executed`, sorted triples of path, qualified name and SHA-256 of a code object; `read`, sorted pairs of path
        and SHA-256 of a file or of a folder's names; `problem`, why these are not all, or None: `preloaded`, `native`,
        `processes`, `profiled`, `compiled`, `too_much`, `failed` or `ended`. Lines, comments and paths above the roots
        do not count.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _testify(writer, dict(case), seed, roots)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    try:
        found: Message = json.loads(text)
    except ValueError:
        return {"executed": [], "read": [], "problem": "ended"}
    return found


def _testify(writer: int, case: dict[str, Any], seed: int, roots: Sequence[str]) -> None:
    """Do it in the child, and end."""
    try:
        found = _Witness(roots).of(case, seed)
    except BaseException:  # noqa: BLE001 - whatever the case raises; calibration has said it already
        found = {"executed": [], "read": [], "problem": "failed"}
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(found).encode())
    finally:
        os._exit(0)


class _Witness:
    """Sees what a process executes and reads from now on."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [Path(root).resolve() for root in roots]
        self._codes: dict[int, CodeType] = {}
        self._read: set[Path] = set()
        self._problem: str | None = None
        self._places: dict[str, str | None] = {}
        self._is_on = False

    def of(self, case: dict[str, Any], seed: int) -> Message:
        """Set a case up and call it."""
        compiled = CompileEvents()
        if self._modules():
            self._object("preloaded")
        self._start()
        prepared = prepare_case(case, seed=seed, check=False)
        for _ in range(CALLS - 1):
            prepared.calls[0]()
        is_watched = sys.getprofile() == self._profile
        self._is_on = False
        sys.setprofile(None)
        if prepared.group is not None or any(name in sys.modules for name in _SPAWNING):
            self._object("processes")
        if not is_watched:
            self._object("profiled")
        if compiled.so_far():
            self._object("compiled")
        return self._said()

    def _start(self) -> None:
        sys.addaudithook(self._audit)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        self._is_on = True

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._codes.setdefault(id(frame.f_code), frame.f_code)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_on or event not in _WATCHED:  # asking for the caller is an event, too
            return
        caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - Python has no other way to ask
        if event in _STARTS_PROCESSES:
            self._object("processes")
        elif event == "sys.setprofile":
            if caller != threading.__file__:
                self._object("profiled")
        elif event == "ctypes.dlopen":
            if self._place_of(arguments[0]) is not None:
                self._object("native")
        elif event == "open" or caller != _IMPORTLIB:
            self._see(arguments[0], is_import=caller == _IMPORTLIB)

    def _object(self, problem: str) -> None:
        self._problem = self._problem or problem

    def _see(self, path: object, *, is_import: bool) -> None:
        """Remember a file or folder that is read; sources are no data where they are imported."""
        place = self._place_of("." if path is None else path)
        if place is not None and not (is_import and place.endswith((".py", ".pyc"))):
            self._read.add(Path(os.fsdecode("." if path is None else path)).absolute())  # type: ignore[arg-type]

    def _place_of(self, path: object) -> str | None:
        """Where in the trees a path lies that was given to the system; None for others, and for open files."""
        return self._place(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else None

    def _place(self, file: str) -> str | None:
        """`0:nets/model.py`: the number of the root and the path below it; None outside all of them."""
        if file not in self._places:
            resolved = Path(file).resolve()
            found = None
            for number, root in enumerate(self._roots):
                if root == resolved or holds(root, resolved):
                    found = f"{number}:{resolved.relative_to(root).as_posix()}"
                    break
            self._places[file] = found
        return self._places[file]

    def _modules(self) -> list[str]:
        """Files of the trees that are imported; some of torch's modules name files that are not there."""
        return [file for file in imported_files().values() if self._place(file) and Path(file).is_file()]

    def _said(self) -> Message:
        executed = set()
        for code in self._codes.values():
            if (place := self._place(code.co_filename)) is not None and not code.co_filename.startswith("<"):
                executed.add((place, getattr(code, "co_qualname", code.co_name), digest_of_code(code)))
        if not all(file.endswith(".py") for file in self._modules()):
            self._object("native")
        read = {(self._place(str(path)) or "", _digest_of_content(path)) for path in self._read}
        if len(executed) + len(read) > _MOST_RECORDS:
            return {"executed": [], "read": [], "problem": "too_much"}
        return {"executed": sorted(executed), "read": sorted(read), "problem": self._problem}


def digest_of_code(code: CodeType) -> str:
    """SHA-256 of what a code object does; functions inside it count by their names, as they have records of their own.

    Line numbers and the file's name do not count.
    """
    parts = (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_flags,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        getattr(code, "co_exceptiontable", b""),
        [_constant(each) for each in code.co_consts],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _constant(value: object) -> object:
    """A constant as something whose text says all of it, in one order."""
    if isinstance(value, CodeType):
        return ("code", value.co_name)
    if isinstance(value, tuple):
        return tuple(_constant(each) for each in value)
    if isinstance(value, frozenset):
        return ("set", sorted(repr(_constant(each)) for each in value))
    return (type(value).__name__, value)


def _digest_of_content(path: Path) -> str:
    """Of a file's bytes, or of the names in a folder."""
    try:
        if path.is_dir():
            names = sorted(each.name for each in path.iterdir() if each.name != "__pycache__")
            return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "absent"
