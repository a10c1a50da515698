"""Runs the steps of a composite action as GitHub's runner does, as far as perfguard's own action needs it.

`uses:` steps are recorded, not run. Expressions: comparisons of names and literals, `!cancelled()`, joined by `&&`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ACTION = Path(__file__).parent.parent / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_STATUS = ("cancelled()", "always()", "failure()", "success()")


@dataclass
class Ran:
    """What one step did."""

    name: str
    used: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    returncode: int | None = None
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class ActionRun:
    """What an action did."""

    steps: list[Ran]
    outputs: dict[str, str]
    summary: str
    failed: bool

    def step(self, name: str) -> Ran:
        (found,) = (step for step in self.steps if step.name == name or (step.used or "").startswith(name))
        return found

    def annotations(self) -> list[str]:
        return [line for step in self.steps for line in commands_in(step.log)]


@dataclass
class Runner:
    """A job on a runner."""

    action: Path
    workspace: Path
    temp: Path
    environment: dict[str, str]
    github: dict[str, str] = field(default_factory=dict)

    def run(self, **inputs: str) -> ActionRun:
        document = YAML(typ="safe").load(self.action)
        unknown = inputs.keys() - {name.replace("-", "_") for name in document["inputs"]}
        assert not unknown, unknown
        given = {
            name: inputs.get(name.replace("-", "_"), self._text(declared.get("default", ""), {}))
            for name, declared in document["inputs"].items()
        }
        known: dict[str, Any] = {f"inputs.{name}": value for name, value in given.items()}
        self.temp.mkdir(parents=True, exist_ok=True)
        summary = self.temp / "summary.md"
        summary.write_text("")
        ran, failed = [], False
        for index, step in enumerate(document["runs"]["steps"]):
            condition = self._bare(str(step.get("if", "true")))
            if failed and not any(status in condition for status in _STATUS):
                continue
            if not self._holds(condition, known):
                continue
            done = self._step(step, index, known, summary)
            ran.append(done)
            known.update({f"steps.{done.name}.outputs.{key}": value for key, value in done.outputs.items()})
            failed = failed or bool(done.returncode)
        outputs = {name: self._text(declared["value"], known) for name, declared in document["outputs"].items()}
        return ActionRun(steps=ran, outputs=outputs, summary=summary.read_text(encoding="utf-8"), failed=failed)

    def _step(self, step: dict[str, Any], index: int, known: dict[str, Any], summary: Path) -> Ran:
        name = step.get("id", str(index))
        if "uses" in step:
            inputs = {key: self._text(value, known) for key, value in step.get("with", {}).items()}
            return Ran(name=name, used=step["uses"], inputs=inputs)
        assert step["shell"] == "bash"
        script, output = self.temp / f"{index}.sh", self.temp / f"{index}.output"
        script.write_text(self._text(step["run"], known))
        output.write_text("")
        variables = {key: self._text(value, known) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace / self._text(step.get("working-directory", "."), known),
            env={
                **self.environment,
                "RUNNER_TEMP": str(self.temp),
                "GITHUB_ACTION_PATH": str(self.action.parent),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        outputs = parse_outputs(output.read_text(encoding="utf-8"))
        return Ran(name=name, returncode=done.returncode, log=done.stdout, outputs=outputs, variables=variables)

    def _text(self, value: Any, known: dict[str, Any]) -> str:
        return _EXPRESSION.sub(lambda found: str(self._value(found[1], known)), str(value))

    def _value(self, name: str, known: dict[str, Any]) -> str:
        if name.startswith("'"):
            return name.strip("'")
        if name.startswith("github."):
            return self.github[name.removeprefix("github.")]
        assert name.startswith(("inputs.", "steps.")), name
        assert name.startswith("steps.") or name in known, name
        return known.get(name, "")

    def _bare(self, condition: str) -> str:
        found = _EXPRESSION.fullmatch(condition.strip())
        return found[1] if found else condition

    def _holds(self, condition: str, known: dict[str, Any]) -> bool:
        if condition in ("true", "!cancelled()"):
            return True
        if "&&" in condition:
            return all(self._holds(part.strip(), known) for part in condition.split("&&"))
        left, operator, right = re.fullmatch(r"(\S+) (==|!=) (\S+)", condition).groups()  # type: ignore[union-attr]
        return (self._value(left, known) == self._value(right, known)) is (operator == "==")


def parse_outputs(text: str) -> dict[str, str]:
    """What a step wrote to GITHUB_OUTPUT, as the runner reads it."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        name, sign, rest = re.fullmatch(r"([^=<]+)(=|<<)(.*)", line).groups()  # type: ignore[union-attr]
        if sign == "=":
            found[name] = rest
            continue
        value = []
        while (part := next(lines)) != rest:
            value.append(part)
        found[name] = "\n".join(value)
    return found


def commands_in(log: str) -> list[str]:
    """Lines that the runner would take for workflow commands, `##[…]` of old among them."""
    found, stopped = [], None
    for line in map(str.strip, log.splitlines()):
        if stopped is not None:
            stopped = None if line == f"::{stopped}::" else stopped
        elif line.startswith("::stop-commands::"):
            stopped = line.removeprefix("::stop-commands::")
        elif re.match(r"::[A-Za-z-]+( [^:]*)?::|##\[", line):
            found.append(line)
    return found


def stand_in_python(folder: Path) -> Path:
    """A folder for the front of PATH whose `python3 -m venv` makes environments that have perfguard already.

    There `pip install` is only noted down, and a baseline is measured on any host.
    """
    folder.mkdir(parents=True)
    inner = (
        '#!/bin/sh\ncase "$*" in\n'
        f'  "-I -m pip install"*) echo "$@" >> "{folder}/pip.log"; exit 0 ;;\n'
        '  *"perfguard baseline update"*) set -- "$@" --allow-unfit ;;\nesac\n'
        f'exec {sys.executable} "$@"\n'
    )
    outer = (
        '#!/bin/sh\ncase "$*" in "-I -m venv"*)\n  for place; do :; done\n  mkdir -p "$place/bin"\n'
        f'  cp "{folder}/inner" "$place/bin/python"; exit 0 ;;\nesac\nexec {sys.executable} "$@"\n'
    )
    for name, text in (("inner", inner), ("python3", outer)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def runner_for(project_path: Path, environment: dict[str, str], temp: Path, **github: str) -> Runner:
    """A runner whose workspace is a project; nothing of the test's own job, if it is one, leaks in."""
    clean = {key: value for key, value in environment.items() if not key.startswith(("GITHUB_", "ACTIONS_", "RUNNER_"))}
    bin_folder = stand_in_python(temp / "bin")
    clean["PATH"] = f"{bin_folder}{os.pathsep}{clean['PATH']}"
    variables = {f"GITHUB_{name.upper()}": value for name, value in github.items() if name != "token"}
    return Runner(
        action=ACTION,
        workspace=project_path,
        temp=temp / "runner",
        environment={**clean, **variables},
        github={"run_attempt": "1", "token": "ghs_secret", **github},
    )
