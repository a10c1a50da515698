"""A script run as `python SCRIPT ARGUMENT…` runs it, but in this process."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from perfguard.records.protocol import ScriptExit

_DETAIL_CHARACTERS = 8000
_SENTENCE_CHARACTERS = 300


class ScriptEnded(BaseException):
    """Raised in a script whose further steps nobody wants to see; passes those that catch every Exception."""


def run_script(path: str, arguments: Sequence[str]) -> ScriptExit:
    """Run a file as `__main__`, with its arguments and with its own directory first on the import path.

    A process that the script forks ends where the script does, as it would without perfguard.
    """
    process = os.getpid()
    found = _run(path, arguments)
    if os.getpid() != process:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(found.exit_code & 0xFF)
    return found


def _run(path: str, arguments: Sequence[str]) -> ScriptExit:
    script = str(Path(path).absolute())
    argv, import_path = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except ScriptEnded:
        return ScriptExit(exit_code=0, was_ended=True)
    except SystemExit as stop:
        return ScriptExit(exit_code=_exit_code(stop))
    except BaseException as error:  # noqa: BLE001 - whatever a script raises is its result
        return ScriptExit(exit_code=1, problem=_sentence(error), detail=_traceback(error, script))
    finally:
        sys.argv, sys.path[:] = argv, import_path
    return ScriptExit(exit_code=0)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)  # noqa: T201 - as Python does with anything else
    return 1


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:_SENTENCE_CHARACTERS]


def _traceback(error: BaseException, script: str) -> str:
    """The traceback without the frames that led to the script; all of it where none of its frames is in it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, frame or error.__traceback__)
    return "".join(lines)[-_DETAIL_CHARACTERS:]
