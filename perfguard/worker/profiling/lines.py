"""Marks in a trace that tell which line of the user's code runs.

torch.profiler names the line at which a function begins. Here a trace function follows the lines of the user's own
functions, and of no others, and records an event of no length whenever another line comes to be the innermost one:
`perfguard::line:train.py:88`. What the profiler records up to the next mark of the thread was run by that line.

Where the changed lines of a tree are given, the innermost of them that is running comes first: it led to what runs
below it, in whatever file that is.

A mark lies beside the ops: neither the dispatcher nor a compiler sees it, so a step executes the same with marks as
without. Code that a compiler made has lines that nobody wrote; what it runs belongs to the line that called it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from perfguard.records.protocol import LINE_PREFIX
from perfguard.worker.profiling.modules import annotation_type

MOST_MARKS = 500_000
"""In a step. Loops over millions of lines would fill memory; what runs after so many marks has no line."""

_CAN_BE_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code whose frames leave and come back in the middle of a line."""

_COMPILED_REST = "torch_dynamo_resume_in_"
"""How torch.compile calls the rest of a function behind a graph break."""
_COMPILED_NAMES = re.compile(r"\b__(?:compiled_fn|resume_at)_")
"""What the code that it makes calls: graphs, and such rests."""

_TraceFunction = Callable[[FrameType, str, Any], Any]


class LineMarks(AbstractContextManager[None]):
    """Marks the lines that this thread executes inside a `with`, those of the functions around it included.

    Where a debugger or a coverage tool follows the thread already, it is left in peace, and there are no marks.
    """

    def __init__(self, *, most: int = MOST_MARKS, changed: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        """`changed` has first and last lines by absolute path without links."""
        self._changed = changed or {}
        self._ranges: dict[str, Sequence[Sequence[int]]] = {}  # The same by the name that code has of its file
        self._annotate = annotation_type()
        self._files = UserFiles()
        self._marks: dict[str, AbstractContextManager[Any]] = {}
        self._latest: str | None = None
        self._left = most
        # Methods are made again at each access; a followed frame is recognized by having this one.
        self._inside: _TraceFunction = self._follow

    def __enter__(self) -> None:
        if sys.gettrace() is not None:
            return
        _hide_from_compiler(
            *(self._enter, self._follow, self._mark_innermost, self._mark_line, self._mark, self._is_followed),
            *(self._file, self._innermost_changed, self._ranges_of),
            *self._files.functions,
        )
        around = sys._getframe(1)  # noqa: SLF001 - there is no other way to it
        for frame in _frames_from(around):
            if self._is_followed(frame):
                frame.f_trace = self._inside
        self._mark_innermost(around)
        sys.settrace(self._enter)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.gettrace() == self._enter:
            sys.settrace(None)
        for frame in _frames_from(sys._getframe(1)):  # noqa: SLF001
            if frame.f_trace is self._inside:
                frame.f_trace = None

    # From here on, the interpreter calls in the middle of the program.

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> _TraceFunction | None:
        """A function begins or goes on; the first line of one that begins is an event of its own."""
        if not self._is_followed(frame):
            return None
        if frame.f_code.co_flags & _CAN_BE_RESUMED:
            self._mark_line(frame)
        return self._inside

    def _follow(self, frame: FrameType, event: str, _argument: object) -> _TraceFunction:
        """A function of the user's comes to a line, or is left: then its caller goes on in the middle of one."""
        if event == "line":
            self._mark_line(frame)
        elif event == "return":
            self._mark_innermost(frame.f_back)
        return self._inside

    def _is_followed(self, frame: FrameType) -> bool:
        return self._file(frame) is not None and not is_compiled(frame.f_code)

    def _file(self, frame: FrameType) -> str | None:
        return self._files.name(frame.f_code.co_filename, frame.f_globals.get("__name__"))

    def _mark_innermost(self, frame: FrameType | None) -> None:
        """Mark the line of the innermost frame that is followed."""
        inside = self._inside
        while frame is not None and frame.f_trace is not inside:
            frame = frame.f_back
        if frame is None:
            self._mark("")
        else:
            self._mark_line(frame)

    def _mark_line(self, frame: FrameType) -> None:
        frame = self._innermost_changed(frame) or frame
        line = frame.f_lineno
        if line is not None:  # there is none where the interpreter only tidies up
            self._mark(f"{self._file(frame)}:{line}")

    def _innermost_changed(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame, from this one outward, that runs a changed line."""
        while self._changed and frame is not None:
            line = frame.f_lineno or 0
            for first, last in self._ranges_of(frame.f_code.co_filename):
                if first <= line <= last and self._is_followed(frame):
                    return frame
            frame = frame.f_back
        return None

    def _ranges_of(self, filename: str) -> Sequence[Sequence[int]]:
        if filename not in self._ranges:
            self._ranges[filename] = self._changed.get(os.path.realpath(filename), ())
        return self._ranges[filename]

    def _mark(self, line: str) -> None:
        if line == self._latest or not self._left:
            return
        self._latest = line
        self._left -= 1
        if not self._left:
            line = ""
        mark = self._marks.get(line)
        if mark is None:
            mark = self._marks[line] = self._annotate(LINE_PREFIX + line)
        mark.__enter__()
        mark.__exit__(None, None, None)


def _frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_compiled(code: CodeType) -> bool:
    """Whether torch.compile made this code out of the user's, whose name and file it has."""
    return code.co_name.startswith(_COMPILED_REST) or _COMPILED_NAMES.search(" ".join(code.co_names)) is not None


def _hide_from_compiler(*functions: Any) -> None:
    """Have torch.compile run functions as they are.

    It looks at every function that begins while compiled code runs, and would compile those that follow the program.
    """
    skip = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip is not None:
        for function in (*functions, is_compiled):
            skip(function.__code__)


_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_COMPILER = "torch."  # The files that torch.compile writes can lie anywhere; they are modules of torch
_WORKER = Path(__file__).absolute().parents[1]
_START_SCRIPT = str(_WORKER.parents[1] / "start.py")


class UserFiles:
    """Tells the files of the user's code from those of libraries, and remembers which is which."""

    def __init__(self) -> None:
        try:
            self._directory = os.getcwd()  # noqa: PTH109
        except OSError:  # the folder is gone
            self._directory = os.sep
        roots = {self._folder(entry) for entry in ("", *sys.path)} - {os.sep}
        self._roots = sorted(roots, key=len, reverse=True)  # the innermost one names a file
        libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(_WORKER))
        self._libraries = tuple(map(self._folder, libraries))
        self._names: dict[str, str | None] = {}

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        """Those that run when a file's name is asked for."""
        return self.name, self._is_library, self._from_root, self._absolute

    def name(self, filename: str, module: object) -> str | None:
        """The path of a file from the folder that it was imported from; None for a library's.

        The file is given as its code has it, and by `__name__` of its module.
        """
        try:
            return self._names[filename]
        except KeyError:
            is_library = self._is_library(filename, module)
            name = self._names[filename] = None if is_library else self._from_root(self._absolute(filename))
            return name

    def _is_library(self, filename: str, module: object) -> bool:
        if filename.startswith("<") or (isinstance(module, str) and module.startswith(_COMPILER)):
            return True
        path = self._absolute(filename)
        return path.startswith(self._libraries) or path == _START_SCRIPT or _INSTALLED.search(path) is not None

    def _from_root(self, path: str) -> str:
        for known in (path, os.path.realpath(path)):
            for root in self._roots:
                if known.startswith(root):
                    return known.removeprefix(root)
        return path

    def _absolute(self, path: str) -> str:
        """Without following links, as imports do not follow them."""
        return os.path.normpath(os.path.join(self._directory, path))  # noqa: PTH118 - names of code are texts

    def _folder(self, path: str) -> str:
        """What paths in a folder begin with."""
        return os.path.join(self._absolute(path), "")  # noqa: PTH118
