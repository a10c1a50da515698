"""Virtual environments: of software stacks (`perfguard env create ipex`), and of git arms that a command sets up."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import ArmError, HostUnfitError, MeasurementError, UsageError
from perfguard.records.plan import Sandbox
from perfguard.runner.arms.credentials import without_secrets
from perfguard.runner.process.launching import launched, run_captured
from perfguard.runner.process.sandboxing import Holder, holder, interpreter_of
from perfguard.store.files import remove_tree

ENVIRONMENTS = ".perfguard/envs"  # Below a project: those that its set-up command made
_STEP_TIMEOUT_S = 3600.0
_SETUP_TIMEOUT_S = 1800.0
_OFFLINE = ', without the network (`confined_network = "setup"` gives it to set-up commands)'


class StackEnvironment(Struct, frozen=True, kw_only=True):
    """One stack that perfguard knows how to install."""

    name: str  # Name on the command line
    requirements: tuple[str, ...]  # What pip installs, exactly pinned
    needs_bytes: int  # Free disk space that the installation needs
    pythons: tuple[tuple[int, int], ...]  # Python versions that wheels exist for
    warning: str  # What the user must know before using it
    check: str  # Python code that imports the stack and prints JSON with its versions


IPEX = StackEnvironment(
    name="ipex",
    requirements=("torch==2.8.0", "intel-extension-for-pytorch==2.8.0"),
    needs_bytes=9 * 1024**3,
    pythons=((3, 9), (3, 10), (3, 11), (3, 12), (3, 13)),
    warning=(
        "intel-extension-for-pytorch is archived since March 2026, gets no fixes and has known security issues; "
        "use it to measure, in this environment only, not to train"
    ),
    check=(
        "import json, torch, intel_extension_for_pytorch as ipex; "
        "print('PERFGUARD ' + json.dumps({'torch': torch.__version__, 'ipex': ipex.__version__}))"
    ),
)
STACKS = {IPEX.name: IPEX}


def environments_home() -> Path:
    """Where stack environments live: `$PERFGUARD_ENVS`, else below the user's data directory."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("PERFGUARD_ENVS") or f"{data}/perfguard/envs").expanduser().absolute()


def ready_environment(name: str) -> Path:
    """Interpreter of an environment that `create` finished.

    Raises:
        ArmError: It was never made, or not finished.
    """
    home = environments_home() / name
    python = home / "bin" / "python"
    if not (home / "perfguard-ready.json").is_file() or not python.exists():
        raise ArmError(f"stack {name!r} is not installed at {home}; run `perfguard env create {name}` first")
    return python


def create(name: str, *, progress: Callable[[str], None], recreate: bool = False) -> Path:
    """Make the environment of a stack, check that it works, and return its interpreter.

    An existing environment stays, unless it is to be recreated. Steps and lines of pip go to `progress`.

    Raises:
        UsageError: Unknown stack, or no wheels for this Python.
        HostUnfitError: Too little disk space, or a CPU that the stack does not support.
        MeasurementError: The installation failed or gives wrong versions; with the reason.
    """
    if name not in STACKS:
        raise UsageError(f"unknown stack {name!r}; choose from {', '.join(STACKS)}")
    stack = STACKS[name]
    if sys.version_info[:2] not in stack.pythons:
        raise UsageError(f"stack {name!r} has no wheels for Python {sys.version_info[0]}.{sys.version_info[1]}")
    home = environments_home() / name
    if (home / "perfguard-ready.json").is_file() and not recreate:
        progress(f"{home} exists already (use --recreate to make it again)")
        return home / "bin" / "python"
    _require_cpu(stack)
    _require_space(stack, home)
    shutil.rmtree(home, ignore_errors=True)
    progress(f"making a virtual environment at {home}")
    _run_step([sys.executable, "-m", "venv", str(home)], progress)
    python = home / "bin" / "python"
    progress(f"installing {', '.join(stack.requirements)} (several GB; a minute or more)")
    constraints = Path(__file__).with_name(f"constraints-{name}.txt")
    _run_step([str(python), "-m", "pip", "install", "-c", str(constraints), *stack.requirements], progress)
    versions = check_environment(stack, python)
    (home / "perfguard-ready.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    progress(f"ready: {', '.join(f'{key} {value}' for key, value in versions.items())}")
    return python


def check_environment(stack: StackEnvironment, python: Path) -> dict[str, str]:
    """Versions that the environment really imports.

    Raises:
        MeasurementError: The import fails, or torch and the extension do not belong together.
    """
    done = subprocess.run([str(python), "-c", stack.check], capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    for line in said.splitlines():
        if "needs to work with PyTorch" in line:
            raise MeasurementError(f"versions do not fit in {python}: {line.strip()}")
    if "instruction sets equal or newer than AVX2" in said:
        raise HostUnfitError(f"stack {stack.name!r} needs a CPU with AVX2")
    for line in done.stdout.splitlines():
        if line.startswith("PERFGUARD "):
            versions: dict[str, str] = json.loads(line.removeprefix("PERFGUARD "))
            return versions
    tail = said.strip().splitlines()[-1:] or ["no output"]
    raise MeasurementError(f"stack {stack.name!r} does not import in {python}: {tail[0]}")


def _require_space(stack: StackEnvironment, home: Path) -> None:
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(home.parent).free
    except OSError as error:
        raise HostUnfitError(f"{home.parent} cannot be used: {error}; set PERFGUARD_ENVS to another place") from error
    if free < stack.needs_bytes:
        raise HostUnfitError(
            f"stack {stack.name!r} needs {stack.needs_bytes / 1024**3:.0f} GiB at {home.parent}, only "
            f"{free / 1024**3:.1f} GiB are free; free some, or set PERFGUARD_ENVS to another place"
        )


def _require_cpu(stack: StackEnvironment) -> None:
    with suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if " avx2 " not in flags.replace("\n", " "):
            raise HostUnfitError(f"stack {stack.name!r} needs a CPU with AVX2, which this machine does not report")


def _run_step(arguments: list[str], progress: Callable[[str], None]) -> None:
    last: list[str] = []
    try:
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for line in process.stdout or ():
                last = [*last[-20:], line.rstrip()]
                if line.lstrip().startswith(("Collecting", "Downloading", "Installing", "Successfully", "ERROR")):
                    progress(line.strip()[:120])
            code = process.wait(_STEP_TIMEOUT_S)
    except OSError as error:
        raise MeasurementError(f"{arguments[0]} cannot be started: {error}") from error
    if code != 0:
        reasons = [line for line in last if line.startswith("ERROR")] or last[-1:]
        raise MeasurementError(f"{' '.join(arguments[:4])} failed with exit code {code}: {' '.join(reasons)[:600]}")


def environment_for_tree(
    tree: Path, source_id: str, *, command: str, base_interpreter: str, project: Path, sandbox: Sandbox | None = None
) -> Path:
    """Interpreter of a venv in which `command` has been run inside `tree`.

    The venv is kept under `.perfguard/envs/` and reused for the same tree, command and interpreter. An editable
    install would point at a checkout that is gone by then, so the command should install a copy (`pip install .`).
    In a `sandbox` the command may change the venv, too; temporary files go to the first folder that it may change.

    Raises:
        ArmError: The venv cannot be made or the command fails; with the end of its output.
    """
    key = hashlib.sha256(f"{source_id}\0{command}\0{base_interpreter}".encode()).hexdigest()[:16]
    home = project / ENVIRONMENTS / key
    python = home / "bin" / "python"
    done = home / "perfguard-ready"
    if done.is_file() and python.exists():
        return python
    remove_tree(home)
    home.mkdir(parents=True)
    base = shutil.which(base_interpreter) or base_interpreter
    if sandbox is not None:
        known = interpreter_of(base)
        base, readable = known.executable, (*sandbox.readable, *known.folders)
        sandbox = replace(sandbox, readable=readable, writable=(*sandbox.writable, str(home)))
    _run([base, "-m", "venv", str(home)], "the venv cannot be made", tree, None, sandbox)
    _run(["/bin/sh", "-c", command], f"the set-up command {command!r} failed", tree, home, sandbox)
    # The command may have put a link there, which leads anywhere, or a folder.
    remove_tree(done)
    with done.open("x", encoding="utf-8") as file:
        file.write(f"{source_id}\n{command}\n")
    return python


def _run(arguments: list[str], failure: str, tree: Path, venv: Path | None, sandbox: Sandbox | None) -> None:
    command, environment = launched(arguments, sandbox=sandbox), _environment(venv, sandbox)
    try:
        done = run_captured(command, directory=tree, environment=environment, timeout_s=_SETUP_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArmError(f"{failure}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        offline = "" if sandbox is None or sandbox.network or holder() is not Holder.BUBBLEWRAP else _OFFLINE
        raise ArmError(f"{failure} with exit code {done.returncode}{offline}:\n{tail}")


def _environment(venv: Path | None, sandbox: Sandbox | None) -> dict[str, str]:
    """What an installer needs of perfguard's own environment; no credentials where its command is not trusted."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if venv is not None:
        environment["VIRTUAL_ENV"] = str(venv)
        environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    if sandbox is None:
        return environment
    return {**without_secrets(environment), "TMPDIR": sandbox.writable[0], "PIP_NO_CACHE_DIR": "1"}
