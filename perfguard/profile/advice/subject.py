"""What was profiled, and the commands that measure a change to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfguard.records.plan import ArmSpec, EnvProfile
from perfguard.records.steps.findings import Trial

_HERE = ArmSpec(text="dir:.", directory=".")
_COMMITTED = "HEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A case or a script in one arm; neither where only a trace is known."""

    case_id: str = ""
    """The case; empty for a script."""
    script: tuple[str, ...] = ()
    """The script and its arguments."""
    arm: ArmSpec = _HERE
    """The arm that was profiled."""


def after_edit(subject: Subject, change: str) -> Trial:
    """A change of the code: edit, then compare the working tree with the last commit."""
    arm = subject.arm
    before = replace(arm, revision=arm.revision or _COMMITTED, directory=None)
    after = replace(arm, revision=None, directory=arm.directory or ".")
    return Trial(change=change, command=_command(subject, before, after, ()))


def with_variables(
    subject: Subject, variables: Mapping[str, str], change: str, *, profile: EnvProfile | None = None
) -> Trial:
    """A change of the environment: an arm with these variables against the one that was profiled.

    Args:
        subject: What was profiled.
        variables: Set for the candidate; an empty value unsets one.
        change: In words.
        profile: How much of the environment perfguard decides; None leaves that to the configuration.
    """
    environment = tuple(sorted({**dict(subject.arm.environment), **variables}.items()))
    options = () if profile is None else ("--env-profile", profile.value)
    after = replace(subject.arm, environment=environment)
    return Trial(change=change, command=_command(subject, subject.arm, after, options))


def arm_text(arm: ArmSpec) -> str:
    """An arm as it is typed: `dir:.+env:OMP_NUM_THREADS=4`."""
    parts = (
        ("git", arm.revision or ""),
        ("dir", arm.directory or ("" if arm.revision else ".")),
        ("python", arm.interpreter or ""),
        ("env", ",".join(f"{name}={value}" for name, value in arm.environment)),
        ("stack", arm.stack or ""),
    )
    return "+".join(f"{kind}:{value}" for kind, value in parts if value)


def _command(subject: Subject, before: ArmSpec, after: ArmSpec, options: Sequence[str]) -> str:
    """Scripts cannot be compared: their candidate is profiled, as they were."""
    if subject.case_id:
        arms = ("--baseline", arm_text(before), "--candidate", arm_text(after))
        return shlex.join(("perfguard", "compare", *arms, "--case", subject.case_id, "--ops", *options))
    if subject.script:
        return shlex.join(("perfguard", "profile", "--candidate", arm_text(after), *options, *subject.script))
    return ""
