"""Options that several commands share, and the configuration with them on top."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perfguard.cli.completion import complete_cases, complete_suites
from perfguard.cli.declaring import Counts, F, RatioType, SecondsType, flag, parse_percentage, section, together
from perfguard.cli.diagnostics import Verbosity
from perfguard.config import FAIL_ON_CHOICES, LoadedConfig, load_config, outcomes_in
from perfguard.errors import ConfigError, UsageError
from perfguard.units import as_text, format_ratio

if TYPE_CHECKING:
    from perfguard.runner.trusted_rules import TrustedRules

ARMS_HELP = """\b
ARM is one of, or several joined by '+':
  REV, git:REV       a revision, checked out in a worktree of its own
  ./PATH, dir:PATH   a directory
  python:PATH        another interpreter or virtual environment
  env:KEY=VALUE,…    variables; an empty value unsets one
  set:NAME=VALUE,…   parameters of the cases (see `perfguard list`), as in set:optimizer=fused
  stack:ipex         the environment of `perfguard env create ipex`
"""
_MACHINE_KEYS = ("cpus", "threads", "numa", "env_profile", "python", "setup", "confine", "wait")
MEASURING_KEYS = ("suite", "budget_s", "samples", "sample_s", "max_blocks", "seed", *_MACHINE_KEYS)
"""Options that are settings of the configuration."""

json_option = flag("--json", "as_json", help="JSON instead of text.")
_WANTS_JSON = "perfguard.wants_json"  # In the context's `meta`


def _want_json(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
    context.meta[_WANTS_JSON] = value


def _format_of(context: click.Context, _: click.Parameter, value: str) -> str:
    return "json" if context.meta.get(_WANTS_JSON) else value


def format_choice(*formats: str, help: str = "Format of the result on stdout.") -> Callable[[F], F]:  # noqa: A002
    """`--format`, the first one being the default, and `--json` for short."""
    return together(
        click.option(
            "--format",
            "output_format",
            type=click.Choice(formats),
            default=formats[0],
            show_default=True,
            callback=_format_of,
            help=help,
        ),
        # Eager, as the format has to know of it.
        flag("--json", is_eager=True, expose_value=False, callback=_want_json, help="The same as --format json."),
    )


format_option = format_choice("table", "json")
suite_option = click.option("-s", "--suite", help="Suite.")
setup_option = click.option(
    "--setup", metavar="COMMAND", help="Command that installs a git: arm's tree into its own venv: 'pip install .'."
)
margin_option = click.option(
    "--margin",
    type=RatioType(),
    metavar="RATIO",
    help="Smallest slowdown worth a flag; default 0.5%, or 0.25% where the calibration allows it.",
)
env_profile_option = click.option(
    "--env-profile",
    type=click.Choice(["stable", "production"]),
    help="stable pins allocator and threading; production leaves your environment as it is.",
)
python_option = click.option("--python", metavar="PATH", help="Interpreter of the environment under test.")
cpus_option = click.option("--cpus", metavar="LIST", help="CPUs to measure on, such as 2-5,8.")
wait_option = flag(
    "--wait", default=None, help="Wait while another perfguard measures on this host, instead of ending."
)

threads_option = click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use; one thread each.")

_SELECTING = section(
    "What is measured",
    click.option(
        "-s",
        "--suite",
        shell_complete=complete_suites,
        help="Suite to measure: quick, pr, full, hetero, tasks or one of your own.",
    ),
    click.option(
        "-c",
        "--case",
        "patterns",
        multiple=True,
        metavar="PATTERN",
        shell_complete=complete_cases,
        help="Cases instead of a suite: an id, a benchmark, a glob or tag:NAME; may be repeated.",
    ),
)
_BUDGET = click.option(
    "--budget",
    "budget_s",
    type=SecondsType(),
    metavar="TIME",
    help="Wall-clock budget of measuring: 300, 90s, 5m; default: the suite's. Profiling of red cases comes on top.",
)
_SAMPLING = together(
    section(
        "Where",
        click.option("--numa", metavar="NODE", help="NUMA node to measure on, or 'none' to leave memory unbound."),
        env_profile_option,
        python_option,
        wait_option,
    ),
    section(
        "How long",
        click.option(
            "--samples",
            "--slices",
            "samples",
            type=int,
            metavar="N",
            help="Samples of each arm and case in a block, on average; default 12.",
        ),
        click.option(
            "--sample-s",
            "--slice-s",
            "sample_s",
            type=float,
            metavar="SECONDS",
            help="Wanted length of a sample; default 0.02.",
        ),
        click.option("--max-blocks", type=int, metavar="N", help="Upper bound on blocks; default 200."),
        click.option("--seed", type=int, metavar="N", help="Seed of everything random; always recorded."),
    ),
)
sampling_options = together(section("Where", cpus_option, threads_option), _SAMPLING)
"""Options on where and how samples are taken."""

options_without_budget = together(_SELECTING, sampling_options)
measuring_options = together(_SELECTING, section("How long", _BUDGET), sampling_options)
"""Options of every command that measures."""


scaling_options = together(
    _SELECTING,
    section("How long", _BUDGET),
    section(
        "Where",
        cpus_option,
        click.option(
            "--threads",
            type=Counts(),
            metavar="N",
            help="How many of the CPUs to use; one thread each. With --ranks: threads of each rank, such as 1,2.",
        ),
        click.option(
            "--ranks",
            type=Counts(),
            metavar="N,…",
            help="Measure training steps in so many processes at once, each on its own cores: with "
            "DistributedDataParallel over gloo, and as independent replicas. The result has their throughput.",
        ),
    ),
    _SAMPLING,
)
"""The same, with the axes of a scaling table."""


def _verbosity_flag(*names: str, sets: Verbosity, **fields: Any) -> Callable[[F], F]:
    """A flag that sets the value `verbosity` and has none of its own."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
        if value:
            context.params["verbosity"] = sets

    return flag(*names, expose_value=False, callback=remember, **fields)


progress_options = together(
    _verbosity_flag("-q", "--quiet", sets=Verbosity.QUIET, help="Print the result only."),
    _verbosity_flag("-v", "--verbose", sets=Verbosity.VERBOSE, help="Print every step and all notes."),
    _verbosity_flag("--no-progress", sets=Verbosity.QUIET, hidden=True, help="The older name of --quiet."),
)
"""Options on how much a command prints beside its result; they set `verbosity`."""

output_options = section(
    "Output",
    format_choice(
        "table",
        "json",
        "md",
        "comment",
        help="Format of the result on stdout; comment: the Action's comment on a pull request.",
    ),
    progress_options,
)
"""Options on how a result is shown."""

verdict_options = section(
    "Verdict",
    click.option(
        "--fail-on",
        metavar="LIST",
        help="Comma-separated outcomes that give a non-zero exit code, or never; default: "
        f"{','.join(FAIL_ON_CHOICES)}.",
    ),
    flag("--exit-zero", help="Report only: exit with 0, whatever the verdict is."),
    margin_option,
    click.option(
        "--detect",
        "detected",
        metavar="EFFECT",
        help="Slowdown that must not pass, such as 1%: unchanged then means within that; default: 2%.",
    ),
)
"""Options on how a verdict sets the exit code."""


class _Confine(click.ParamType["bool | str"]):
    """`on`, `off` or `strict` as the configuration has it."""

    name = "confine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool | str:
        """`on` and `off` as truth values."""
        known: dict[Any, bool | str] = {"on": True, "off": False, "strict": "strict", True: True, False: False}
        if value not in known:
            self.fail(f"{value!r} is none of on, off, strict", param, ctx)
        return known[value]


trust_options = section(
    "Code that is not trusted",
    click.option(
        "--policy-from",
        metavar="REV",
        help="Read configuration, benchmarks, baselines and allow-list from this revision.",
    ),
    click.option(
        "--confine",
        is_flag=False,
        flag_value="on",
        type=_Confine(),
        metavar="[strict]",
        help="Run measured code in a sandbox: bubblewrap's, or Landlock's, which holds less and 'strict' refuses.",
    ),
    click.option("--no-confine", "is_trusted", is_flag=True, help="Trust the measured code."),
)
"""Options of gates on untrusted code."""


@contextlib.contextmanager
def load_policy(options: dict[str, Any]) -> Iterator[TrustedRules]:
    """The rules of a measuring command: those of the working tree, or of `--policy-from`."""
    from perfguard.records.facts import Severity, fact
    from perfguard.runner.arms.resolve import parse_arm
    from perfguard.runner.process.sandboxing import Holder, require_holder
    from perfguard.runner.trusted_rules import TrustedRules, policy_of_revision

    with contextlib.ExitStack() as stack:
        if options.get("policy_from"):
            measured = parse_arm(options["candidate"]).revision if options.get("candidate") else None
            given = policy_of_revision(
                working_directory(), options["policy_from"], os.environ, _given(options), candidate=measured or "HEAD"
            )
            policy = stack.enter_context(given)
            _require_detectable(policy.loaded, options)
        else:
            policy = TrustedRules(loaded=load(options))
        if policy.loaded.config.confine:
            found = require_holder(strict=policy.loaded.config.confine == "strict")
            if found is Holder.LANDLOCK:
                held = fact("run.held_by_landlock", severity=Severity.NOTABLE)
                policy = replace(policy, notes=(*policy.notes, held))
        yield policy


def load(options: dict[str, Any], *, keys: tuple[str, ...] = MEASURING_KEYS) -> LoadedConfig:
    """The configuration with this command's options on top. Raises ConfigError: A file or option is wrong."""
    loaded = load_config(working_directory(), os.environ, _given(options, keys))
    _require_detectable(loaded, options)
    return loaded


def _require_detectable(loaded: LoadedConfig, options: dict[str, Any]) -> None:
    margin = loaded.config.wide_margin
    if options.get("detected") and loaded.config.equivalence <= margin:
        raise UsageError(
            f"--detect {options['detected']}: only slowdowns above the margin of {format_ratio(margin)} are flagged; "
            "lower --margin, too"
        )


def _given(options: dict[str, Any], keys: tuple[str, ...] = MEASURING_KEYS) -> dict[str, Any]:
    """Settings that were given on the command line."""
    wanted = (*keys, "fail_on", "margin", "rounds", "spread_s")
    given = {key: options[key] for key in wanted if options.get(key) is not None}
    if "fail_on" in given:
        given["fail_on"] = outcomes_in(given["fail_on"])
    if options.get("is_trusted"):
        given["confine"] = False
    if options.get("detected"):
        given["equivalence"] = parse_percentage("--detect", options["detected"])
    return given


def working_directory() -> Path:
    """Where the command was started. Raises ConfigError: it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(f"the working directory is gone ({error.strerror}); change to one that exists") from error


def command_line() -> tuple[str, ...]:
    """The arguments as typed; bytes that are no text are escaped."""
    return tuple(map(as_text, sys.argv[1:]))
