"""`perfguard gate`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load_policy, measuring_options, output_options, trust_options, verdict_options
from perfguard.cli.watching import tui_option


@click.command("gate")
@click.option(
    "--baseline",
    metavar="ARM",
    help="What to compare with; default: the stored baseline where one fits this machine, else git:HEAD.",
)
@click.option(
    "--anchor", is_flag=True, help="Pair with the anchor's revision instead: many small slips against anchor_margin."
)
@click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to judge.")
@measuring_options
@click.option("--setup", metavar="COMMAND", help="Installs a git: arm's tree into a venv of its own: 'pip install .'.")
@click.option(
    "--inject",
    "injections",
    multiple=True,
    metavar="PATTERN=+5%",
    help="Slow cases on purpose, to test the gate.",
)
@click.option(
    "--ops/--no-ops",
    "ops",
    default=None,
    help="Compare the ops of all cases, or of none; default: of those that regressed.",
)
@trust_options
@verdict_options
@tui_option
@output_options
def command(**options: Any) -> None:
    """Judge the working tree against the stored baseline or the last commit.

    Exits with 1 on a regression, 4 where the noise was too high to tell. See `perfguard compare --help` for arms.
    """
    from perfguard.cli.measuring import build_request, show
    from perfguard.errors import ArmError, UsageError
    from perfguard.gate.choose import compare_or_gate, default_gate
    from perfguard.gate.stored.anchors import gate_against_anchor
    from perfguard.runner.arms.arm_spec import parse_arm

    baseline = parse_arm(options["baseline"]) if options["baseline"] else None
    candidate = parse_arm(options["candidate"])
    if options["anchor"] and baseline is not None:
        raise UsageError("--anchor chooses the baseline itself; leave --baseline out")
    if candidate.stored:
        raise ArmError("--candidate stored: only the baseline can be a stored one")
    with load_policy(options) as policy:
        request = build_request("gate", policy.loaded, options, injections=options["injections"], notes=policy.notes)
        if options["anchor"]:
            result = gate_against_anchor(request, candidate)
        elif baseline is None:
            result = default_gate(request, candidate)
        else:
            result = compare_or_gate(request, baseline, candidate)
    show(result, options)
