"""Every `fact("code", ...)` in the source, read without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import perfguard
from perfguard.report.messages.catalog import messages

PACKAGE = Path(perfguard.__file__).parent
SUBJECT = frozenset({"case_id", "arm", "op", "place"})
"""Keywords of `fact` that say what it is about."""
_MAKER = "profile/changes/counted.py"
"""Makes facts of codes that it is given."""


@dataclass(frozen=True, kw_only=True)
class MadeFact:
    """One call that makes a fact."""

    place: str
    """`gate/rules/compare.py:141`."""
    code: str | None
    """None where it is not a constant."""
    severity: str | None
    """`info`, `notable`, `grave`; None where it is not a constant."""
    names: frozenset[str]
    """Values and parts of the subject that are given by keyword."""
    is_open: bool
    """Whether more values come from a mapping."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """All modules of the package by their path inside it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), _parsed(path)


def codes_of_changes() -> frozenset[str]:
    """Codes of changes that stand in their rules as constants, or are put together there: `f"{kind}.fused"`."""
    written = [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z_]+" for part in parts)
        for name, module in modules()
        if name.startswith("profile/changes/")
        for node in ast.walk(module)
        for parts in [node.values if isinstance(node, ast.JoinedStr) else [node]]
        if isinstance(parts[0], (ast.Constant, ast.FormattedValue)) and "." in ast.unparse(node)
    ]
    patterns = [re.compile(pattern) for pattern in set(written) if len(pattern) > len("[a-z_]+")]
    return frozenset(code for code in messages() if any(pattern.fullmatch(code) for pattern in patterns))


@cache
def made_facts() -> tuple[MadeFact, ...]:
    """All facts that are made anywhere in the package."""
    constants = _constants()
    return tuple(
        _made(f"{name}:{node.lineno}", node, code)
        for name, module in modules()
        if name != _MAKER
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fact"
        for code in _codes(node.args[0], constants)
    )


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _constants() -> dict[str, str]:
    """Names of modules' constants that are codes."""
    return {
        target.id: node.value.value
        for _, module in modules()
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _codes(node: ast.expr, constants: dict[str, str]) -> list[str | None]:
    if isinstance(node, ast.IfExp):
        return [*_codes(node.body, constants), *_codes(node.orelse, constants)]
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    return [constants.get(node.id) if isinstance(node, ast.Name) else None]


def _made(place: str, call: ast.Call, code: str | None) -> MadeFact:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    severity = given.pop("severity", None)
    named = severity.attr.lower() if isinstance(severity, ast.Attribute) else None
    return MadeFact(
        place=place,
        code=code,
        severity="info" if severity is None else named,
        names=frozenset(name for name in given if name is not None),
        is_open=None in given or len(call.args) > 1,
    )
