"""A venv of its own for a git arm, filled by the project's set-up command and kept for the next run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.runner.arms.environment import looks_secret
from perfguard.runner.process.launching import launched, run_captured

_TIMEOUT_S = 1800.0


def environment_for_tree(
    tree: Path,
    source_id: str,
    *,
    command: str,
    base_interpreter: str,
    project: Path,
    writable: tuple[str, ...] | None = None,
) -> Path:
    """Interpreter of a venv in which `command` has been run inside `tree`.

    The venv is kept under `.perfguard/envs/` and reused for the same tree, command and interpreter. An editable
    install would point at a checkout that is gone by then, so the command should install a copy (`pip install .`).

    Args:
        tree: The source tree.
        source_id: Its identity.
        command: For `/bin/sh`.
        base_interpreter: Makes the venv.
        project: Where venvs are kept.
        writable: What the command may change beside the venv, the first of it for temporary files; None confines
            nothing.

    Raises:
        ArmError: The venv cannot be made or the command fails; with the end of its output.
    """
    key = hashlib.sha256(f"{source_id}\0{command}\0{base_interpreter}".encode()).hexdigest()[:16]
    home = project / ".perfguard" / "envs" / key
    python = home / "bin" / "python"
    done = home / "perfguard-ready"
    if done.is_file() and python.exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir()
    rights = None if writable is None else (*writable, str(home))
    _run([_absolute(base_interpreter), "-m", "venv", str(home)], "the venv cannot be made", tree, None, rights)
    _run(["/bin/sh", "-c", command], f"the set-up command {command!r} failed", tree, home, rights)
    done.write_text(f"{source_id}\n{command}\n", encoding="utf-8")
    return python


def _absolute(interpreter: str) -> str:
    return shutil.which(interpreter) or interpreter


def _run(arguments: list[str], failure: str, tree: Path, venv: Path | None, writable: tuple[str, ...] | None) -> None:
    try:
        done = run_captured(
            launched(arguments, writable=writable),
            directory=tree,
            environment=_environment(venv, writable),
            timeout_s=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArmError(f"{failure}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ArmError(f"{failure} with exit code {done.returncode}:\n{tail}")


def _environment(venv: Path | None, writable: tuple[str, ...] | None) -> dict[str, str]:
    """What an installer needs of perfguard's own environment; no credentials where its command is not trusted."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if venv is not None:
        environment["VIRTUAL_ENV"] = str(venv)
        environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    if writable is None:
        return environment
    kept = {name: value for name, value in environment.items() if not looks_secret(name)}
    return {**kept, "TMPDIR": writable[0], "PIP_NO_CACHE_DIR": "1"}
