"""`perfguard demo`: a project that gets slower, its red gate, and the report of it."""

from __future__ import annotations

import os
import subprocess
import sys
import webbrowser
from importlib import resources, util
from pathlib import Path

import click

from perfguard.cli.declaring import SecondsType
from perfguard.errors import ExitCode, MeasurementError, UsageError
from perfguard.units import printable

_CONFIG = """\
benchmarks = ["train.py"]
suite = "demo"
[suites.demo]
gating = ["train"]
"""
_FAST, _SLOW = "parameters(), fused=True)", "parameters())"
_REPORT = "report.html"
_NO_TORCH = (
    "the demo needs torch, which this environment lacks; run pip install 'perfguard[torch]', or without installing: "
    "pipx run --spec 'perfguard[torch]' perfguard demo"
)


@click.command("demo")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    default="perfguard-demo",
    show_default=True,
    help="Folder to make; it must be new or empty.",
)
@click.option(
    "--budget", "budget_s", type=SecondsType(), default="60", show_default=True, metavar="TIME", help="Time to measure."
)
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the report in a browser.")
def demo_command(*, folder: Path, budget_s: float, opens: bool) -> None:
    """Gate a small project whose optimizer lost `fused=True`, and write its report: about two minutes.

    The exit code is 0 if the gate finds the slowdown, else the gate's own.
    """
    if not _has_torch():
        raise UsageError(_NO_TORCH)
    _write_project(folder)
    click.echo(f"wrote {printable(str(folder))}: a training step, and a change that makes it slower:\n")
    click.echo(_output("git", "diff", "--unified=0", "train.py", folder=folder).partition("@@")[2].partition("\n")[2])
    _step(folder, "gate", "--wait", "--budget", f"{budget_s:g}", expected=ExitCode.REGRESSION)
    _step(folder, "report", "-o", _REPORT, "--force", expected=ExitCode.PASS)
    page = (folder / _REPORT).resolve()
    if opens and _has_browser():
        webbrowser.open(page.as_uri())
    click.echo("\nnext:")
    click.echo(f"  open {printable(str(folder / _REPORT))} in a browser")
    click.echo(f"  cd {printable(str(folder))}; perfguard tui       # the run in the terminal, down to the op")
    click.echo("  perfguard init                      # in your own repository")


def _write_project(folder: Path) -> None:
    """A repository with the fast step committed and the slow one in the working tree."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty; choose another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = (resources.files("perfguard") / "templates" / "demo_train.py.in").read_text(encoding="utf-8")
        (folder / "train.py").write_text(text, encoding="utf-8")
        (folder / "perfguard.toml").write_text(_CONFIG, encoding="utf-8")
        (folder / ".gitignore").write_text(f".perfguard/\n{_REPORT}\n", encoding="utf-8")
        _output("git", "init", "-q", folder=folder)
        _output("git", "add", ".", folder=folder)
        who = ("-c", "user.name=perfguard demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
        _output("git", *who, "commit", "-q", "-m", "A training step", folder=folder)
        (folder / "train.py").write_text(text.replace(_FAST, _SLOW), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; choose another folder with -o") from error


def _output(*command: str, folder: Path) -> str:
    try:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError as error:
        raise MeasurementError("git is not installed; the demo compares a commit with the working tree") from error
    except subprocess.CalledProcessError as error:
        raise MeasurementError(f"{' '.join(command[:2])} failed in {folder}: {error.stderr.strip()}") from error


def _step(folder: Path, *arguments: str, expected: ExitCode) -> None:
    """Run another command of perfguard in the project, as its user would; end with its exit code where it surprises."""
    click.echo(f"$ perfguard {' '.join(arguments)}")
    done = subprocess.run([sys.executable, "-m", "perfguard", *arguments], cwd=folder, check=False)
    if done.returncode != expected:
        raise click.exceptions.Exit(done.returncode or int(ExitCode.INFRASTRUCTURE))


def _has_torch() -> bool:
    """Whether torch is installed beside perfguard; it is not imported."""
    return util.find_spec("torch") is not None


def _has_browser() -> bool:
    """Whether a browser of a desktop would open; one in the terminal would take it over."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin")
