"""Names that the shell completes: suites, and cases of the catalogue and of the latest run."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MOST_BYTES = 1 << 20
_TYPABLE = re.compile(r"[\w.+/-]{1,200}(\[[\w.,=+/-]{0,200}\])?", re.ASCII)  # What a shell takes as one word
_MOST_LINES = 50  # The cases of a run are in one of its first events


def complete_cases(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Benchmarks; after an opening bracket their cases. Nothing is imported or measured for it."""
    from perfguard.benchmarks.catalog import BENCHMARKS
    from perfguard.records.spec import expand

    ids = [case.id for spec in BENCHMARKS for case in expand(spec)] + _latest_cases(Path.cwd())
    names = ids if "[" in incomplete else [case_id.partition("[")[0] for case_id in ids]
    return _items(names, incomplete)


def complete_suites(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Built-in suites and those of the project."""
    from perfguard.benchmarks.catalog import SUITES
    from perfguard.config import load_config
    from perfguard.errors import PerfguardError

    names = [suite.name for suite in SUITES]
    with contextlib.suppress(PerfguardError):  # a broken configuration is for the command to tell
        names += load_config(Path.cwd(), os.environ, {}).config.suites
    return _items(names, incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _latest_cases(project: Path) -> list[str]:
    """Ids of the cases that the project's latest run measured."""
    from perfguard.plain_files import open_plain

    runs = sorted(project.glob(".perfguard/runs/*/events.jsonl"))
    try:
        events = open_plain(runs[-1])
        if events is None:
            return []
        with events:
            for line in events.read(_MOST_BYTES).splitlines()[:_MOST_LINES]:
                if (event := json.loads(line))["event"] == "run_started":
                    return [case_id for case_id in event["case_ids"] if _TYPABLE.fullmatch(case_id)]
    except (IndexError, OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # whatever lies in a stranger's checkout
    return []
