"""Variants made real: a git repository with a branch for each, and a checkout of every branch."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.proof.gates_against_peers.catalogue import ALL
from tests.proof.gates_against_peers.places import TEMPLATE, TREES, VICTIM_REPOSITORY
from tests.proof.gates_against_peers.variants import Exchange, Kind, Replace, Variant

BASE = "base"
_MODULE = "victim.py"
_RUNS = ".perfguard"
_DEEP = "a-place-that-lies-much-deeper/than-the-others-do/and-has-a-longer-name"
_DATE = "2026-01-01T00:00:00+0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Where the victim and its variants lie."""

    repository: Path
    """Git repository with the branches."""
    trees: Mapping[str, Path]
    """Checkout of each variant by name; `base` is the victim as it stands."""


def edited(source: str, variant: Variant, spins_s: Mapping[str, float]) -> str:
    """The victim's module as the variant has it.

    Args:
        source: The module as it stands.
        variant: What to change.
        spins_s: Calibrated seconds of an iteration, by case.

    Raises:
        ValueError: A text that should be replaced does not stand there exactly once.
    """
    for edit in variant.edits:
        source = _exchanged(source, edit) if isinstance(edit, Exchange) else _replaced(source, edit, variant)
    if variant.spins is not None and variant.effect is not None:
        seconds = spins_s[variant.spins] * variant.effect
        spin = Replace(old=f'"{variant.spins}": 0.0', new=f'"{variant.spins}": {seconds:.4e}')
        source = _replaced(source, spin, variant)
    return source


def make(spins_s: Mapping[str, float]) -> Made:
    """Make the repository and the checkouts anew; equal inputs give equal commits. Runs recorded there stay."""
    shutil.rmtree(TREES, ignore_errors=True)
    for place in VICTIM_REPOSITORY.glob("*"):  # glob finds hidden names too
        if place.name != _RUNS:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    shutil.copytree(TEMPLATE, VICTIM_REPOSITORY, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (VICTIM_REPOSITORY / ".gitignore").write_text("__pycache__/\n.perfguard/\n.benchmarks/\n*.egg-info/\nbuild/\n")
    _git("init", "--quiet", "--initial-branch", BASE)
    _commit("The victim")
    original = (VICTIM_REPOSITORY / _MODULE).read_text(encoding="utf-8")
    for variant in ALL:
        _git("checkout", "--quiet", "-B", variant.name, BASE)
        (VICTIM_REPOSITORY / _MODULE).write_text(edited(original, variant, spins_s), encoding="utf-8")
        _commit(variant.doc)
    _git("checkout", "--quiet", BASE)
    names = {BASE: TREES / "v00", **{v.name: _place(v, number) for number, v in enumerate(ALL, 1)}}
    for name, place in names.items():
        _git("worktree", "add", "--quiet", "--detach", str(place), name)
    return Made(repository=VICTIM_REPOSITORY, trees=names)


def made() -> Made:
    """What an earlier `make` left.

    Raises:
        SystemExit: Nothing was made yet.
    """
    names = {BASE: TREES / "v00", **{v.name: _place(v, number) for number, v in enumerate(ALL, 1)}}
    missing = [name for name, place in names.items() if not (place / _MODULE).is_file()]
    if missing:
        raise SystemExit(f"not made yet: {', '.join(missing)}; run the sub-command `prepare` first")
    return Made(repository=VICTIM_REPOSITORY, trees=names)


def changes_sources(variant: Variant) -> bool:
    """Whether its files differ from the victim's."""
    return bool(variant.edits) or variant.kind is Kind.SPIN


def _place(variant: Variant, number: int) -> Path:
    return TREES / _DEEP / f"v{number:02d}" if variant.is_deep else TREES / f"v{number:02d}"


def _replaced(source: str, edit: Replace, variant: Variant) -> str:
    if source.count(edit.old) != 1:
        raise ValueError(f"{variant.name}: {edit.old!r} stands {source.count(edit.old)} times in the module, not once")
    return source.replace(edit.old, edit.new)


def _exchanged(source: str, edit: Exchange) -> str:
    lines = source.splitlines(keepends=True)
    spans = {
        node.name: (node.lineno - 1, node.end_lineno)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in (edit.first, edit.second)
    }
    if set(spans) != {edit.first, edit.second}:
        raise ValueError(f"the module does not define both {edit.first} and {edit.second}")
    (a, b), (c, d) = spans[edit.first], spans[edit.second]
    return "".join([*lines[:a], *lines[c:d], *lines[b:c], *lines[a:b], *lines[d:]])


def _commit(message: str) -> None:
    _git("add", "--all")
    _git("commit", "--quiet", "--allow-empty", "-m", message)


def _git(*arguments: str) -> None:
    identity = {
        "GIT_AUTHOR_NAME": "The proof",
        "GIT_AUTHOR_EMAIL": "proof@example.invalid",
        "GIT_COMMITTER_NAME": "The proof",
        "GIT_COMMITTER_EMAIL": "proof@example.invalid",
        "GIT_AUTHOR_DATE": _DATE,
        "GIT_COMMITTER_DATE": _DATE,
    }
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(
        ["git", "-c", "commit.gpgsign=false", "-C", str(VICTIM_REPOSITORY), *arguments],
        check=True,
        env={**environment, **identity, "GIT_CONFIG_GLOBAL": os.devnull},
    )
