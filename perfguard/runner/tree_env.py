"""A venv of its own for a git arm, filled by the project's set-up command and kept for the next run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from perfguard.errors import ArmError

_TIMEOUT_S = 1800.0


def environment_for_tree(tree: Path, source_id: str, *, command: str, base_interpreter: str, project: Path) -> Path:
    """Interpreter of a venv in which `command` has been run inside `tree`.

    The venv is kept under `.perfguard/envs/` and reused for the same tree, command and interpreter. An editable
    install would point at a checkout that is gone by then, so the command should install a copy (`pip install .`).

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
    _run([base_interpreter, "-m", "venv", str(home)], "the venv cannot be made", cwd=tree, path=None)
    _run(["/bin/sh", "-c", command], f"the set-up command {command!r} failed", cwd=tree, path=home)
    done.write_text(f"{source_id}\n{command}\n", encoding="utf-8")
    return python


def _run(arguments: list[str], failure: str, *, cwd: Path, path: Path | None) -> None:
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["VIRTUAL_ENV"] = str(path)
        environment["PATH"] = f"{path / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=environment,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArmError(f"{failure}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ArmError(f"{failure} with exit code {done.returncode}:\n{tail}")
