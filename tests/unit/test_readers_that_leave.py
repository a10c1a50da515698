from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from perfguard.cli.diagnostics import reader_may_leave

_PRINTS = """
import click
from rich.console import Console
from perfguard.cli.diagnostics import reader_may_leave
with reader_may_leave():
    {statement}
raise SystemExit(4)
"""


@pytest.mark.parametrize(
    "statement",
    ["Console().print('x ' * 100_000)", "click.echo('x ' * 100_000)", "print('x ' * 100_000, flush=True)"],
    ids=["rich", "click", "print"],
)
def test_the_exit_code_stands_whoever_reads(statement):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", _PRINTS.format(statement=statement)], stdout=writer, timeout=60)
    os.close(writer)
    assert done.returncode == 4


def test_an_exit_that_no_broken_pipe_led_to_is_an_exit():
    with pytest.raises(SystemExit), reader_may_leave():
        raise SystemExit(3)


def test_another_fault_of_the_output_is_not_hidden():
    with pytest.raises(OSError, match="full"), reader_may_leave():
        raise OSError(errno.ENOSPC, "full")
