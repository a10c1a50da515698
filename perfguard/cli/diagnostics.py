"""Errors to stderr and exit codes; the only place where an error is caught for good."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

import click

from perfguard.errors import ExitCode, PerfguardError


def run_and_exit(group: click.Group, arguments: list[str]) -> NoReturn:
    """Run a command and exit with its code; every error becomes one message on stderr."""
    try:
        code = group.main(args=arguments, prog_name="perfguard", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.Abort:
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except PerfguardError as error:
        click.echo(f"perfguard: {error}", err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        click.echo("perfguard: aborted", err=True)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; that is its business.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.PASS
    except Exception as error:  # noqa: BLE001 - a defect of ours: say so, with what is needed to report it
        traceback.print_exc()
        click.echo(
            f"perfguard: internal error ({type(error).__name__}); this is a defect of perfguard, please report the "
            "lines above",
            err=True,
        )
        code = ExitCode.INFRASTRUCTURE
    sys.exit(int(code) if isinstance(code, int) else 0)
