"""A first `perfguard.toml`: what a new project needs, and every other setting as a comment with its default."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Mapping
from enum import Enum
from typing import Any

from perfguard.config import Config, SuiteConfig

SUITE = "mine"
"""The suite that is written."""
_WIDTH = 100
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
    "anchor": "git:v1.0",
}
"""Something to write where the default is none, which TOML cannot say."""
_KEYS_EXAMPLE = {"pause": "p"}


def starting_config() -> str:
    """The text of the file, made from `Config`: its fields, their defaults and what is documented of them."""
    documented = _documented(Config)
    defaults = Config()
    parts = [_comment(_HEAD)]
    for field in dataclasses.fields(Config):
        if field.name in ("suites", "keys"):
            continue
        default = getattr(defaults, field.name)
        parts.append(_setting(field.name, documented[field.name], default, _GIVEN))
    parts.append(_suite_table(documented["suites"]))
    table = "\n".join(["[keys]", *(f"{key} = {_toml(value)}" for key, value in _KEYS_EXAMPLE.items())])
    parts.append(f"{_comment(documented['keys'])}\n{textwrap.indent(table, '# ')}")
    return "\n\n".join(parts) + "\n"


def _suite_table(documentation: str) -> str:
    documented = _documented(SuiteConfig)
    settings = [
        _setting(field.name, documented[field.name], field.default, _GIVEN_OF_SUITE)
        for field in dataclasses.fields(SuiteConfig)
    ]
    return "\n".join([_comment(documentation), f"[suites.{SUITE}]", *settings])


def _setting(name: str, documentation: str, default: object, given: Mapping[str, object]) -> str:
    """What is documented, then the setting: given, or commented out with its default or else an example."""
    if name in given:
        line = f"{name} = {_toml(given[name])}"
    else:
        line = f"# {name} = {_toml(_EXAMPLES.get(name, '') if default is None else default)}"
    return f"{_comment(documentation)}\n{line}"


def _comment(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="## ", subsequent_indent="## ", break_on_hyphens=False)


def _toml(value: object) -> str:
    """A setting's value; JSON's strings, lists, numbers and booleans are TOML, too."""
    plain: Any = value.value if isinstance(value, Enum) else value
    return json.dumps(plain, ensure_ascii=False)


def _documented(settings: type) -> dict[str, str]:
    """The line under each field of a dataclass, by the field's name."""
    lines = [line for part in ast.parse(inspect.getsource(settings)).body for line in getattr(part, "body", ())]
    return {
        field.target.id: " ".join(line.value.value.split())
        for field, line in itertools.pairwise(lines)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    }
