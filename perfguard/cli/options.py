"""Options that several commands share, and how they become a request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from perfguard.config import FAIL_ON_CHOICES, LoadedConfig, load_config
from perfguard.errors import ConfigError

ARMS_HELP = """\b
ARM is one of, or several joined by '+':
  git:REV            a revision, checked out in a worktree of its own
  dir:PATH           a directory
  python:PATH        another interpreter or virtual environment
  env:KEY=VALUE,…    variables; an empty value unsets one
  stack:ipex         the environment of `perfguard env create ipex`
"""

F = TypeVar("F", bound=Callable[..., Any])

MEASURING_KEYS = (
    "suite",
    "budget_s",
    "cpus",
    "threads",
    "numa",
    "env_profile",
    "slices",
    "slice_s",
    "max_blocks",
    "seed",
    "setup",
    "python",
)


def measuring_options(function: F) -> F:
    """Options of every command that measures."""
    for option in reversed(
        (
            click.option("-s", "--suite", help="Suite to measure: quick, pr, full or one of your own."),
            click.option(
                "-c",
                "--case",
                "patterns",
                multiple=True,
                metavar="PATTERN",
                help="Cases instead of a suite: an id, a benchmark, a glob or tag:NAME; may be repeated.",
            ),
            click.option(
                "--budget", "budget_s", type=float, metavar="SECONDS", help="Wall-clock budget; default: the suite's."
            ),
            click.option("--cpus", metavar="LIST", help="CPUs to measure on, such as 2-5,8."),
            click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use; one thread each."),
            click.option("--numa", metavar="NODE", help="NUMA node to measure on, or 'none' to leave memory unbound."),
            click.option(
                "--env-profile",
                type=click.Choice(["stable", "production"]),
                help="stable pins allocator and threading; production leaves your environment alone.",
            ),
            click.option("--python", metavar="PATH", help="Interpreter of the environment under test."),
            click.option("--slices", type=int, metavar="N", help="Slices of each arm, case and block; default 12."),
            click.option("--slice-s", type=float, metavar="SECONDS", help="Wanted length of a slice; default 0.02."),
            click.option("--max-blocks", type=int, metavar="N", help="Upper bound on blocks; default 60."),
            click.option("--seed", type=int, metavar="N", help="Seed of everything random; recorded in any case."),
        )
    ):
        function = option(function)
    return function


def output_options(function: F) -> F:
    """Options on how a result is shown."""
    for option in reversed(
        (
            click.option(
                "--format",
                "output_format",
                type=click.Choice(["table", "json", "md"]),
                default="table",
                show_default=True,
                help="How to print the result on stdout.",
            ),
            click.option("--no-progress", is_flag=True, help="Do not show progress on stderr."),
        )
    ):
        function = option(function)
    return function


def verdict_options(function: F) -> F:
    """Options on what a verdict does to the exit code."""
    for option in reversed(
        (
            click.option(
                "--fail-on",
                metavar="LIST",
                help=f"Comma-separated outcomes that give a non-zero exit code; default: {','.join(FAIL_ON_CHOICES)}.",
            ),
            click.option("--exit-zero", is_flag=True, help="Report only: exit with 0 whatever the verdict is."),
            click.option(
                "--margin",
                type=float,
                metavar="RATIO",
                help="Smallest slowdown worth a flag; default 0.005, which is 0.5 %.",
            ),
        )
    ):
        function = option(function)
    return function


def load(options: dict[str, Any], *, keys: tuple[str, ...] = MEASURING_KEYS) -> LoadedConfig:
    """The configuration with this command's options on top.

    Raises:
        ConfigError: A file or option is wrong.
    """
    given = {key: options.get(key) for key in keys if options.get(key) is not None}
    fail_on = options.get("fail_on")
    if fail_on is not None:
        given["fail_on"] = [item.strip() for item in fail_on.split(",") if item.strip()]
    for key in ("margin", "rounds", "spread_s"):
        if options.get(key) is not None:
            given[key] = options[key]
    try:
        here = Path.cwd()
    except OSError as error:
        raise ConfigError(f"the working directory is gone ({error.strerror}); change to one that exists") from error
    return load_config(here, os.environ, given)


def command_line() -> tuple[str, ...]:
    """The arguments as typed."""
    return tuple(sys.argv[1:])
