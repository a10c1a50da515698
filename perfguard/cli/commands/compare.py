"""`perfguard compare`, and what `perfguard gate` shares with it."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import (
    ARMS_HELP,
    load_policy,
    measuring_options,
    output_options,
    setup_option,
    together,
    trust_options,
    verdict_options,
)
from perfguard.cli.watching import tui_option

_EPILOG = f"""{ARMS_HELP}  stored             the stored baseline of this machine (baseline only)
For instance: --baseline git:main --candidate dir:.+env:OMP_NUM_THREADS=4
"""

judging_options = together(
    click.option(
        "--anchor",
        is_flag=True,
        help="Pair with the anchor's revision, with anchor_margin: detects many small slowdowns.",
    ),
    click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to judge."),
    measuring_options,
    setup_option,
    click.option(
        "--inject",
        "injections",
        multiple=True,
        metavar="PATTERN=+5%",
        help="Slow down the candidate's cases (negative: the baseline's) to test the gate.",
    ),
    click.option("--measure-anyway", is_flag=True, help="Measure even if both arms run the same code (A/A)."),
    click.option(
        "--ops/--no-ops",
        "ops",
        default=None,
        help="Compare the ops of all cases, or of none; default: of regressed cases.",
    ),
    trust_options,
    verdict_options,
    tui_option,
    output_options,
)
"""Options of both, but for the baseline."""


@click.command("compare", epilog=_EPILOG)
@click.option("--baseline", metavar="ARM", help="What to compare with.  [default: git:HEAD]")
@judging_options
def command(**options: Any) -> None:
    """Measure two arms in interleaved blocks and judge each case."""
    judge("compare", options, default_baseline="git:HEAD")


def judge(name: str, options: dict[str, Any], *, default_baseline: str | None) -> None:
    """Measure both arms, print the verdicts and exit with their code.

    Args:
        name: Of the command.
        options: Of the command.
        default_baseline: Without `--baseline`; None: the stored baseline where one fits, else the last commit.

    Raises:
        UsageError: `--anchor` with `--baseline`.
        ArmError: No such arm.
    """
    from perfguard.cli.measuring import build_request, show
    from perfguard.errors import ArmError, UsageError
    from perfguard.gate.choose import compare_or_gate, default_gate
    from perfguard.gate.stored.anchors import gate_against_anchor
    from perfguard.runner.arms.resolve import parse_arm

    if options["anchor"] and options["baseline"] is not None:
        raise UsageError("--anchor chooses the baseline itself; leave --baseline out")
    text = options["baseline"] or default_baseline
    baseline, candidate = parse_arm(text) if text else None, parse_arm(options["candidate"])
    if candidate.stored:
        raise ArmError("--candidate stored: only the baseline can be a stored one")
    with load_policy(options) as policy:
        request = build_request(name, policy.loaded, options, injections=options["injections"], notes=policy.notes)
        if options["anchor"]:
            result = gate_against_anchor(request, candidate)
        elif baseline is None:
            result = default_gate(request, candidate)
        else:
            result = compare_or_gate(request, baseline, candidate)
    show(result, options)
