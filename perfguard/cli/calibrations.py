"""Calibrations and plans on stdout."""

from __future__ import annotations

import math

import click

from perfguard.cli.output import print_parts
from perfguard.codec import to_json
from perfguard.errors import UsageError
from perfguard.gate.calibrate import Calibrated
from perfguard.records.planning import SuitePlan
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.calibration import render_calibration, render_plan
from perfguard.units import format_ratio, printable


def print_calibrated(found: Calibrated, *, as_json: bool) -> None:
    """The error rate, the table of cases, and whether it holds."""
    if as_json:
        click.echo(
            to_json(
                {
                    "error_rate": found.error_rate,
                    "interrupted": found.interrupted,
                    "notes": found.notes,
                    "path": str(found.path),
                    "reason": found.state.reason,
                    "scope": found.calibration.scope if found.calibration else None,
                    "status": found.state.status,
                    "summary": found.summary,
                },
                indent=1,
            )
        )
        return
    for note in found.notes:
        click.echo(f"note       {printable(describe(note))}")
    summary = found.summary
    if summary is not None:
        print_parts(lambda width: render_calibration(summary, width=width))
    click.echo(printable(describe(found.error_rate)))


def print_plan(plan: SuitePlan, *, as_json: bool) -> None:
    """What each case needs."""
    if as_json:
        click.echo(to_json(plan, indent=1))
        return
    print_parts(lambda width: render_plan(plan, width=width))


def parse_percentage(option: str, text: str) -> float:
    """`2%` or `0.02` as a ratio; `2` is taken for a slip, `200%` is not.

    Raises:
        UsageError: It is neither.
    """
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{option} {text!r} is no percentage above zero; write it as 2% or 0.02")
    if value >= 1 and not text.strip().endswith("%"):
        raise UsageError(
            f"{option} {text!r} would be {format_ratio(value)}: {value:g} % is written {value:g}% or {value / 100:g}"
        )
    return value
