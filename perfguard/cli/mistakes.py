"""Commands, options and arguments that do not exist: what to type instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import click

_NEAR = 0.72  # Similarity, from 0 to 1, from which a word may be a slip for another
_ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "perfguard": {
        "allow": ("accept", "ignore", "skip", "suppress"),
        "baseline update": ("record", "save", "store", "update"),
        "bisect": ("blame", "culprit"),
        "calibrate": ("noise",),
        "compare": ("ab", "diff"),
        "fingerprint": ("cpu", "info", "machine", "system"),
        "gate": ("check", "ci", "test", "verify"),
        "hetero train": ("hogbatch", "train"),
        "history log": ("log", "runs"),
        "history push": ("push", "upload"),
        "init": ("create", "new", "setup", "start"),
        "profile": ("flamegraph", "ops", "trace"),
        "publish": ("site",),
        "run": ("bench", "benchmark", "measure", "time"),
        "serve": ("server", "web"),
        "show": ("last", "result", "results", "summary", "verdict"),
        "study profilednn": ("profilednn",),
        "task list": ("mlperf", "tasks"),
        "tui": ("dashboard", "live", "top", "ui"),
        "tune": ("autotune", "optimise", "optimize"),
        "--help": ("help",),
    },
    "baseline": {"diff": ("compare",), "show": ("get", "list", "ls"), "update": ("create", "record", "save", "store")},
    "config": {"show": ("get", "list", "print")},
    "db": {"move": ("copy", "import", "migrate", "restore"), "status": ("info", "show"), "upgrade": ("create", "init")},
    "fleet": {"status": ("list", "show"), "submit": ("gate", "run"), "worker": ("join", "start", "work")},
    "history": {"cases": ("list",), "log": ("runs",), "mark": ("ack", "acknowledge", "triage")},
    "task": {"run": ("bench", "measure", "start"), "check": ("validate", "verify"), "list": ("ls", "show")},
}
"""What other tools call a command, by the name of its group."""
_OPTIONS = {
    "--baseline": ("--base", "--before", "--against", "--reference", "--old"),
    "--budget": ("--time", "--timeout", "--duration", "--max-time", "--minutes"),
    "--candidate": ("--head", "--after", "--contender", "--new"),
    "--case": ("--benchmark", "--bench", "--filter", "--test", "--match", "--only", "-k"),
    "--cpus": ("--affinity", "--cores", "--cpu", "--cpu-list", "--taskset"),
    "--fail-on": ("--fail", "--strict", "--error-on"),
    "--format": ("--export", "--out", "--output", "--out-format", "--style"),
    "--margin": ("--threshold", "--tolerance", "--min-effect"),
    "--samples": ("--iterations", "--iters", "--loops", "--repeat", "--repeats", "--values"),
    "--max-blocks": ("--blocks", "--runs", "--processes"),
    "--threads": ("--jobs", "--nthreads", "--num-threads", "-j"),
    "--quiet": ("--silent",),
    "--verbose": ("--debug",),
}
"""What other tools call an option."""


def corrected(error: click.UsageError) -> click.UsageError:
    """The error with a message that says what to type; others come back as they are."""
    context = error.ctx
    if context is None:
        return error
    if isinstance(error, click.NoSuchOption):
        return click.UsageError(_no_option(context, error.option_name), ctx=context)
    name = getattr(error, "command_name", None)  # of click.NoSuchCommand, which is as young as click 8.4
    if isinstance(name, str) and isinstance(context.command, click.Group):
        return click.UsageError(no_command(context, context.command, name), ctx=context)
    return error


def no_command(context: click.Context, group: click.Group, name: str) -> str:
    """That a group has no such command, and which one was meant."""
    known = group.list_commands(context)
    meant = _other_word(_ELSEWHERE.get(context.info_name or "", {}), name.lower()) or _near(name, known)
    if meant is not None:
        return f"No such command {name!r}; type `{context.command_path} {meant}`."
    return f"No such command {name!r}; `{context.command_path} --help` lists all."


def _no_option(context: click.Context, name: str) -> str:
    options = [each for each in context.command.params if isinstance(each, click.Option) and not each.hidden]
    known = [option for each in options for option in each.opts if option.startswith("--")]
    meant = _other_word({option: words for option, words in _OPTIONS.items() if option in known}, name)
    meant = meant or _near(name, known)
    more = f"did you mean {meant}?" if meant else f"`{context.command_path} --help` lists all."
    return f"No such option {name}; {more}"


def no_argument(context: click.Context, given: Sequence[str]) -> str:
    """That a command takes no such arguments, and which options take them."""
    known = {option for each in context.command.params for option in each.opts}
    path, first = context.command_path, given[0]
    if first == "%":
        return "a percentage has no blank: 5%"
    if {"--baseline", "--candidate"} <= known and context.info_name == "compare":
        arms = "".join(
            f" {option} {revision}" for option, revision in zip(("--baseline", "--candidate"), given, strict=False)
        )
        return f"{first!r} is no option; revisions are compared with `{path}{arms}`."
    if "--case" in known:
        revisions = ", revisions with --baseline REV" if "--baseline" in known else ""
        return f"{first!r} is no option; cases are chosen with `{path} -c {first}`{revisions}."
    return f"{first!r} is one argument too many; `{path} --help` shows what it takes."


def _other_word(words: dict[str, tuple[str, ...]], name: str) -> str | None:
    return next((ours for ours, others in words.items() if name in others), None)


def _near(name: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return found[0] if found else None
