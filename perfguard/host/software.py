"""Asks an interpreter about its software stack; torch is never imported here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfguard.host.parsers.parsing import parse_words
from perfguard.host.parsers.software import decode_software
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import SoftwareFacts

_REPORTER = Path(__file__).parents[1] / "worker" / "torch_env.py"
_RUN_REPORTER = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
_MAX_ERROR = 250
_TIMEOUT_S = 180.0


def query_software(
    python: Path, *, environment: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S
) -> SoftwareFacts:
    """Ask an interpreter about itself in a process of its own.

    Args:
        python: The interpreter under test; it needs torch but not perfguard.
        environment: Its whole environment; None for this process's own.
        timeout_s: Importing torch from a cold disk takes tens of seconds.

    Returns:
        The facts; `problem` says why they are empty when the interpreter could not be asked.
    """
    command: Sequence[str] = (str(python), "-c", _RUN_REPORTER, str(_REPORTER))
    try:
        done = subprocess.run(
            command,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found = fact("host.interpreter_not_started", interpreter=str(python), error=parse_words(str(error)))
        return SoftwareFacts(problem=found)
    try:
        answer: object = json.loads(done.stdout.decode("utf-8", errors="replace").strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        tail = done.stderr.decode("utf-8", errors="replace").strip().rpartition("\n")[2]
        told = parse_words(tail[:_MAX_ERROR])
        failed = fact("host.interpreter_failed", interpreter=str(python), status=done.returncode, error=told)
        return SoftwareFacts(problem=failed)
    return decode_software(answer)
