"""Standard streams, errors to stderr and exit codes.

Everything in this room raises PerfguardError for what the user did or the machine lacks; it is caught here only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import sys
import traceback
from collections.abc import Iterator
from enum import Enum
from typing import NoReturn, TextIO

import click

from perfguard.errors import ExitCode, PerfguardError
from perfguard.units import printable


class Verbosity(str, Enum):
    """What a command says beside its result: nothing; what changes the verdict, and its progress; or every step."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end; nobody is at the end of a stream that was closed before the start."""
    return stream is not None and not stream.closed and stream.isatty()


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """While entered, a closed stdout is no error: what is left to print is dropped.

    click and rich turn a broken pipe into SystemExit(1), which would read as a regression; rich has put /dev/null over
    stdout by then.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit) as stop:
        causes = (stop, stop.__context__)
        if not _reader_is_gone() and not any(getattr(cause, "errno", None) == errno.EPIPE for cause in causes):
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _reader_is_gone() -> bool:
    poller = select.poll()
    try:
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no descriptor behind it
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))


def run_and_exit(group: click.Group, arguments: list[str]) -> NoReturn:
    """Run a command and exit with its code; every error becomes one message on stderr."""
    code: object = ExitCode.PASS
    try:
        with reader_may_leave():
            code = group.main(args=arguments, prog_name="perfguard", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("perfguard: aborted", err=True)
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        from perfguard.cli.mistakes import corrected

        (corrected(error) if isinstance(error, click.UsageError) else error).show()
        code = error.exit_code
    except PerfguardError as error:
        # A stranger's text is no command to the runner of a workflow, which finds them at the beginning of a line.
        click.echo("perfguard: " + re.sub(r"(?m)^(\s*):(?=:)", r"\1: ", printable(str(error), keep="\n")), err=True)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 - a defect of ours: say so, with what is needed to report it
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            click.echo("perfguard: the disk that the output goes to is full", err=True)
            sys.exit(int(ExitCode.INFRASTRUCTURE))
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            click.echo(f"perfguard: a name is too long: {printable(str(error.filename))[:80]}…", err=True)
            sys.exit(int(ExitCode.USAGE))
        if isinstance(error, UnicodeEncodeError):
            click.echo("perfguard: an argument holds bytes that are no text; write names and values as UTF-8", err=True)
            sys.exit(int(ExitCode.USAGE))
        traceback.print_exc()
        click.echo(
            f"perfguard: internal error ({type(error).__name__}); this is a defect of perfguard, please report the "
            "lines above",
            err=True,
        )
        code = ExitCode.INFRASTRUCTURE
    sys.exit(int(code) if isinstance(code, int) else 0)
