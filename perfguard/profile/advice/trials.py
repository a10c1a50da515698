"""The commands that measure what following a piece of advice brings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfguard.records.plan import ArmSpec, EnvProfile

_HERE = ArmSpec(text="dir:.", directory=".")


class Program(Struct, frozen=True, kw_only=True):
    """A case or a script in one arm; neither where only a trace is known."""

    case_id: str = ""  # The case; empty for a script
    script: tuple[str, ...] = ()  # The script and its arguments
    arm: ArmSpec = _HERE  # The arm that was profiled
    settings: Mapping[str, tuple[str, ...]] = {}
    """Values by name of what an arm can set where no code is edited: of a script, or of a built-in case."""


def after_edit(program: Program) -> str:
    """For a change of the code: compares the working tree with the last commit."""
    before = replace(program.arm, revision=program.arm.revision or "HEAD", directory=None)
    after = replace(program.arm, revision=None, directory=program.arm.directory or ".")
    return _command(program, before, after)


def with_variables(program: Program, variables: Mapping[str, str], profile: EnvProfile | None = None) -> str:
    """For a change of the environment: compares an arm with these variables, empty ones unset, with the profiled one.

    `profile` says how much of the environment perfguard decides; None leaves that to the configuration.
    """
    environment = tuple(sorted({**dict(program.arm.environment), **variables}.items()))
    options = () if profile is None else ("--env-profile", profile.value)
    return _command(program, program.arm, replace(program.arm, environment=environment), options)


def with_setting(program: Program, name: str, value: str) -> str:
    """For a setting that needs no edit: compares an arm with it with the profiled one."""
    parameters = tuple(sorted({**dict(program.arm.parameters), name: value}.items()))
    return _command(program, program.arm, replace(program.arm, parameters=parameters))


def arm_text(arm: ArmSpec) -> str:
    """An arm as it is typed: `dir:.+env:OMP_NUM_THREADS=4`."""
    parts = (
        ("git", arm.revision or ""),
        ("dir", arm.directory or ("" if arm.revision else ".")),
        ("python", arm.interpreter or ""),
        ("env", ",".join(f"{name}={value}" for name, value in arm.environment)),
        ("set", ",".join(f"{name}={value}" for name, value in arm.parameters)),
        ("stack", arm.stack or ""),
    )
    return "+".join(f"{kind}:{value}" for kind, value in parts if value)


def _command(program: Program, before: ArmSpec, after: ArmSpec, options: Sequence[str] = ()) -> str:
    """Of a script the candidate is profiled, as it was; its file is in no arm's tree, so revisions are not compared."""
    baseline, candidate = ("--baseline", arm_text(before)), ("--candidate", arm_text(after))
    arms = candidate if program.script and before.revision != after.revision else (*baseline, *candidate)
    if program.case_id:
        return shlex.join(("perfguard", "compare", *arms, "--case", program.case_id, "--ops", *options))
    if program.script:
        return shlex.join(("perfguard", "profile", *arms, *options, *program.script))
    return ""
