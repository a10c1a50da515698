"""`perfguard compare`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import (
    ARMS_HELP,
    load_policy,
    measuring_options,
    output_options,
    trust_options,
    verdict_options,
)
from perfguard.cli.watching import tui_option

_EPILOG = f"""{ARMS_HELP}  stored             the stored baseline of this machine (baseline only)
For instance: --baseline git:main --candidate dir:.+env:OMP_NUM_THREADS=4
"""


@click.command("compare", epilog=_EPILOG)
@click.option("--baseline", metavar="ARM", help="What to compare with.  [default: git:HEAD]")
@click.option(
    "--anchor", is_flag=True, help="Compare with the anchor's revision: many small slips against anchor_margin."
)
@click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to judge.")
@measuring_options
@click.option("--setup", metavar="COMMAND", help="Installs a git: arm's tree into a venv of its own: 'pip install .'.")
@click.option(
    "--inject",
    "injections",
    multiple=True,
    metavar="PATTERN=+5%",
    help="Slow the candidate's cases on purpose (negative: the baseline's), to test the gate itself.",
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
    """Measure two arms in interleaved blocks and judge each case."""
    from perfguard.cli.measuring import build_request, show
    from perfguard.errors import ArmError, UsageError
    from perfguard.gate.choose import compare_or_gate
    from perfguard.gate.stored.anchors import gate_against_anchor
    from perfguard.runner.arms.arm_spec import parse_arm

    if options["anchor"] and options["baseline"] is not None:
        raise UsageError("--anchor chooses the baseline itself; leave --baseline out")
    baseline, candidate = parse_arm(options["baseline"] or "git:HEAD"), parse_arm(options["candidate"])
    if candidate.stored:
        raise ArmError("--candidate stored: only the baseline can be a stored one")
    with load_policy(options) as policy:
        request = build_request("compare", policy.loaded, options, injections=options["injections"], notes=policy.notes)
        if options["anchor"]:
            result = gate_against_anchor(request, candidate)
        else:
            result = compare_or_gate(request, baseline, candidate)
    show(result, options)
