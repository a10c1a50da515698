"""`perfguard init`: what a repository needs for its first gate.

A configuration with every setting, a benchmark, workflows, a line in `.gitignore`.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import fields, replace

from perfguard import __version__
from perfguard.cli.declaring import flag
from perfguard.config import Config, SuiteConfig, load_config
from perfguard.errors import UsageError
from perfguard.runner.arms import git
from perfguard.toml_files import read_toml
from perfguard.units import printable

ACTION = f"OWNER/perfguard@v{__version__}"  # The action of this version, as the written workflows name it
BENCHMARK = "benchmarks/perf_first_step.py"
SUITE = "mine"  # The suite that is written
_IGNORED = (".perfguard/", "/report.html")  # Runs, and what `perfguard report` writes
_WORKFLOWS = ("perf.yml", "perf-report.yml", "baseline.yml")
_TOKEN = "PERFGUARD_ACTION"  # noqa: S105 - a word in the templates
_ACTION = re.compile(r"[\w.-]+/[\w./-]+@(?P<ref>[\w./+-]+)", re.ASCII)
_UNPINNED = "# zizmor: ignore[unpinned-uses] put the tag's commit in its place"


class Fate(Enum):
    """What becomes of a file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    EXTENDED = "extended"
    KEPT = "kept"


_WOULD = {Fate.WRITTEN: "would write", Fate.REPLACED: "would replace", Fate.EXTENDED: "would extend"}


class PlannedFile(Struct, frozen=True, kw_only=True):
    """One file of the scaffold."""

    name: str  # Path relative to the directory, with slashes
    fate: Fate
    content: bytes = b""  # All that the file will hold; of no use where it is kept
    note: str = ""


_GITHUB = ".github/"
_GITLAB_JOB, _GITLAB_PIPELINE = ".gitlab/perfguard.yml", ".gitlab-ci.yml"
_HOST = re.compile(r"(?:\w+://)?(?:[^@/]*@)?([^/:]+)")  # Of `https://host/path` and of `user@host:path`
_INCLUDE = f"include: /{_GITLAB_JOB}"


class Scaffold(Struct, frozen=True, kw_only=True):
    """What is to be written where."""

    directory: Path  # The project's; it need not exist yet
    files: tuple[PlannedFile, ...]
    hints: tuple[str, ...]  # What stands between these files and a first gate
    needs_action: bool = False  # Whether workflows still have the placeholder of perfguard's action

    @property
    def changed(self) -> tuple[PlannedFile, ...]:
        """The files that are not kept as they are."""
        return tuple(file for file in self.files if file.fate is not Fate.KEPT)


@click.command("init")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The project; created if it is missing.",
)
@click.option(
    "--workflows/--no-workflows",
    default=True,
    show_default=True,
    help="Also write .github/workflows, or a job for GitLab.",
)
@click.option(
    "--action",
    metavar="OWNER/NAME@REF",
    help="Action that the workflows use; default: this version's tag. A commit is safer.",
)
@flag("--force", help="Replace existing files.")
@flag("--dry-run", help="Write nothing; print what would be written.")
def init_command(*, directory: Path, workflows: bool, action: str | None, force: bool, dry_run: bool) -> None:
    """Write what a repository needs for its first gate.

    That is a perfguard.toml with every setting and its default, a benchmark that runs, workflows that gate pull
    requests, and a line in .gitignore. Existing files are kept.
    """
    scaffold = plan_scaffold(directory, os.environ, workflows=workflows, force=force, action=action or ACTION)
    if not dry_run:
        write_scaffold(scaffold)
    words = [_WOULD.get(file.fate, "kept") if dry_run else file.fate.value for file in scaffold.files]
    width = max(map(len, words))
    for word, file in zip(words, scaffold.files, strict=True):
        click.echo(f"{word:<{width}}  {file.name}" + (f" ({file.note})" if file.note else ""))
    if scaffold.hints:
        click.echo()
    for hint in scaffold.hints:
        click.echo(f"! {printable(hint)}")
    if dry_run:
        click.echo("\nnothing was written")
    elif not scaffold.changed:
        click.echo("\nall of it was there; --force replaces what was kept")
    else:
        _print_next(scaffold)


def _print_next(scaffold: Scaffold) -> None:
    here = scaffold.directory.resolve() == Path.cwd()
    tops = dict.fromkeys(file.name.partition("/")[0] for file in scaffold.changed)
    steps = {"see that the benchmark runs": "perfguard run"}
    if any(file.name == BENCHMARK for file in scaffold.changed):
        steps["have it run a training step of yours: until then no gate sees your code"] = f"$EDITOR {BENCHMARK}"
    if scaffold.needs_action:
        steps["put perfguard's repository and a tag or commit into the workflows"] = (
            "perfguard init --action OWNER/NAME@REF"
        )
    steps |= {
        "commit to your default branch: a gate takes its rules and its baseline from there": (
            f"git add {' '.join(tops)} && git commit -m 'Guard the speed'"
        ),
        "after each change, compare the working tree with the last commit": "perfguard gate",
    }
    click.echo("\nnext" + ("" if here else f", in {printable(shlex.quote(str(scaffold.directory)))}") + ":")
    for number, (meaning, text) in enumerate(steps.items(), start=1):
        click.echo(f"  {number}. {meaning}:\n     {text}")


def plan_scaffold(
    directory: Path, environment: Mapping[str, str], *, workflows: bool, force: bool, action: str = ACTION
) -> Scaffold:
    """Decide what becomes of each file of a project's directory; writes nothing.

    Workflows are GitLab's where the repository has its pipeline or a remote there, else GitHub's; they are left out
    where neither would read them. Settings in `pyproject.toml` stay even with `force`.
    """
    reference = _ACTION.fullmatch(action)
    if not reference:
        raise UsageError(f"--action {action!r} is not written OWNER/NAME@REF")
    existing = next((place for place in (directory, *directory.resolve().parents) if place.is_dir()), Path())
    repository = git.top_level(existing)
    at_top = repository is None or repository.resolve() == directory.resolve()
    benchmark = _planned(directory, BENCHMARK, _template("perf_first_step.py.in"), force=force)
    files = [_config(directory, environment, force=force), benchmark]
    if workflows and at_top and _is_on_gitlab(directory, repository):
        job = _planned(directory, _GITLAB_JOB, _template("gitlab/perfguard.yml"), force=force)
        files += [job, _gitlab_pipeline(directory)]
    elif workflows and at_top:
        uses = action if re.fullmatch(r"[0-9a-f]{40}", reference["ref"]) else f"{action} {_UNPINNED}"
        files += [_workflow(directory, name, uses, force=force) for name in _WORKFLOWS]
    files.append(_gitignore(directory))
    hints = tuple(_hints(repository, files, directory, wanted=workflows))
    needs_action = action.startswith("OWNER/") and any(
        file.fate is not Fate.KEPT and file.name.startswith(_GITHUB) for file in files
    )
    return Scaffold(directory=directory, files=tuple(files), hints=hints, needs_action=needs_action)


def write_scaffold(scaffold: Scaffold) -> None:
    """Write what is planned; a file is there whole or not at all. Raises UsageError: A file cannot be written."""
    for file in scaffold.changed:
        path = scaffold.directory / file.name
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(file.content)
            if path.exists():
                shutil.copymode(path, temporary)
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise UsageError(
                f"{path} cannot be written: {error.strerror}; fix that and run this again; what was written is kept"
            ) from error


def _config(directory: Path, environment: Mapping[str, str], *, force: bool) -> PlannedFile:
    file = _planned(directory, "perfguard.toml", starting_config(), force=force)
    pyproject = directory / "pyproject.toml"
    if file.fate is Fate.WRITTEN and pyproject.is_file():
        tools = read_toml(pyproject).get("tool")
        if isinstance(tools, dict) and "perfguard" in tools:
            # A perfguard.toml beside it would win over it, silently.
            file = PlannedFile(name=pyproject.name, fate=Fate.KEPT, note="settings are in [tool.perfguard]")
    if file.fate is not Fate.KEPT:
        return file
    patterns = load_config(directory, environment).config.benchmarks
    if any(PurePosixPath(BENCHMARK).match(pattern.replace("**/", "")) for pattern in patterns):
        return file
    note = f'add "{BENCHMARK}" to `benchmarks` there, and `first_step` to a suite'
    return PlannedFile(name=file.name, fate=Fate.KEPT, note=note)


def _planned(directory: Path, name: str, content: str, *, force: bool) -> PlannedFile:
    path = directory / name
    for folder in (parent for parent in path.parents if parent.is_relative_to(directory)):
        if os.path.lexists(folder) and not folder.is_dir():
            raise UsageError(f"{folder} is in the way: it is no directory; move it, or choose another --dir")
    if path.is_dir():
        raise UsageError(f"{path} is in the way: it is a directory; move it, or choose another --dir")
    if not os.path.lexists(path):
        return PlannedFile(name=name, fate=Fate.WRITTEN, content=content.encode())
    return PlannedFile(name=name, fate=Fate.REPLACED if force else Fate.KEPT, content=content.encode())


def _workflow(directory: Path, name: str, uses: str, *, force: bool) -> PlannedFile:
    """A workflow; one that is as it was written gets an action that is named now, whatever it had."""
    template, path = _template(f"workflows/{name}"), f".github/workflows/{name}"
    file = _planned(directory, path, template.replace(_TOKEN, uses), force=force)
    if file.fate is not Fate.KEPT or uses.startswith(ACTION):
        return file
    with contextlib.suppress(OSError, UnicodeDecodeError):
        held = (directory / path).read_text(encoding="utf-8")
        written = ".*".join(map(re.escape, template.split(_TOKEN)))
        if re.fullmatch(written, held) and held != file.content.decode():
            return replace(file, fate=Fate.REPLACED, note="only its action changed")
    return file


def _is_on_gitlab(directory: Path, repository: Path | None) -> bool:
    if os.path.lexists(directory / _GITLAB_PIPELINE):
        return True
    hosts = [_HOST.match(url) for url in (git.remote_urls(repository) if repository is not None else ())]
    return any("gitlab" in host[1].lower() for host in hosts if host)


def _gitlab_pipeline(directory: Path) -> PlannedFile:
    """The pipeline includes perfguard's job; one that is there is its owner's to change."""
    return _planned(directory, _GITLAB_PIPELINE, f"{_INCLUDE}\n", force=False)


def _needs_including(directory: Path) -> bool:
    """Whether the pipeline that is there does not name perfguard's job yet."""
    pipeline = directory / _GITLAB_PIPELINE
    try:
        return pipeline.is_file() and _GITLAB_JOB.encode() not in pipeline.read_bytes()
    except OSError:
        return True


def _gitignore(directory: Path) -> PlannedFile:
    """What perfguard leaves in a project is ignored; a file that is there is only added to."""
    name, path = ".gitignore", directory / ".gitignore"
    if not os.path.lexists(path):
        return PlannedFile(name=name, fate=Fate.WRITTEN, content="".join(f"{line}\n" for line in _IGNORED).encode())
    try:
        held = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; fix it, or move it away") from error
    ignored = {line.decode(errors="replace").strip().strip("/") for line in held.splitlines()}
    missing = [line for line in _IGNORED if line.strip("/") not in ignored]
    if not missing:
        return PlannedFile(name=name, fate=Fate.KEPT)
    newline = b"\r\n" if b"\r\n" in held else b"\n"
    between = newline if held and not held.endswith(b"\n") else b""
    added = held + between + b"".join(line.encode() + newline for line in missing)
    return PlannedFile(name=name, fate=Fate.EXTENDED, content=added, note=f"by {' and '.join(missing)}")


def _hints(repository: Path | None, files: list[PlannedFile], directory: Path, *, wanted: bool) -> Iterator[str]:
    if repository is None:
        yield "this is no git repository, and a gate compares commits: start with `git init`"
    if wanted and not any(file.name.startswith((_GITHUB, _GITLAB_JOB)) for file in files):
        yield f"no workflows were planned: they are read in the top folder of a repository only, here {repository}"
    if any(file.name == _GITLAB_JOB for file in files) and _needs_including(directory):
        yield f"add `{_INCLUDE}` to {_GITLAB_PIPELINE}; `stages` there, if set, must name `test`"


def _template(name: str) -> str:
    return (resources.files("perfguard") / "templates" / name).read_text(encoding="utf-8")


_HEAD = (
    "Settings of perfguard. What is commented out has its default; `perfguard config show --origin` prints what counts."
)
_GIVEN: Mapping[str, object] = {"suite": SUITE, "benchmarks": ("benchmarks/perf_*.py",)}
_GIVEN_OF_SUITE: Mapping[str, object] = {"gating": ("first_step",), "doc": "what we gate on", "budget_s": 120.0}
_EXAMPLES: Mapping[str, object] = {
    "asv": "asv.conf.json",
    "python": ".venv/bin/python",
    "setup": "pip install .",
    "cpus": "2-5,8",
    "threads": 4,
    "numa": "0",
    "budget_s": 300.0,
    "seed": 1,
    "margin": 0.01,
    "anchor": "git:v1.0",
    "database": "postgresql://perf@db.example.org/perf",
    "project": "owner/name",
}
"""Something to write where the default is none, which TOML cannot say."""


def starting_config() -> str:
    """The text of `perfguard.toml`, made from `Config`: its fields, their defaults and what is documented of them."""
    documented, defaults = _documented(Config), Config()
    names = [name for name in Config.__struct_fields__ if name not in ("suites", "keys")]
    of_suite, suite_fields = _documented(SuiteConfig), fields(SuiteConfig)
    parts = [
        _comment(_HEAD),
        *(_setting(name, documented[name], getattr(defaults, name), _GIVEN) for name in names),
        "\n".join(
            [
                _comment(documented["suites"]),
                f"[suites.{SUITE}]",
                *(_setting(field.name, of_suite[field.name], field.default, _GIVEN_OF_SUITE) for field in suite_fields),
            ]
        ),
        f'{_comment(documented["keys"])}\n# [keys]\n# pause = "p"',
    ]
    return "\n\n".join(parts) + "\n"


def _setting(name: str, documentation: str, default: object, given: Mapping[str, object]) -> str:
    """What is documented, then the setting: given, or commented out with its default or else an example."""
    if name in given:
        line = f"{name} = {_toml(given[name])}"
    else:
        line = f"# {name} = {_toml(_EXAMPLES.get(name, '') if default is None else default)}"
    return f"{_comment(documentation)}\n{line}"


def _comment(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="## ", subsequent_indent="## ", break_on_hyphens=False)


def _toml(value: object) -> str:
    """A setting's value; JSON's strings, lists, numbers and booleans are TOML, too."""
    plain: Any = value.value if isinstance(value, Enum) else value
    return json.dumps(plain, ensure_ascii=False)


def _documented(settings: type) -> dict[str, str]:
    """The line under each field of a struct, by the field's name."""
    lines = [line for part in ast.parse(inspect.getsource(settings)).body for line in getattr(part, "body", ())]
    documented = {}
    for pair in itertools.pairwise(lines):
        match pair:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                documented[name] = " ".join(text.split())
    return documented
