"""`perfguard github`: what action.yml runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perfguard.cli import options as shared
from perfguard.cli.declaring import SecondsType
from perfguard.cli.measuring import build_request, with_slips
from perfguard.errors import ExitCode, NoRulesYetError, PerfguardError, UsageError
from perfguard.gate.rules.longer_budget import longer_budget
from perfguard.integrations.github import job as github_job
from perfguard.integrations.github import pull_requests
from perfguard.integrations.github.api import DEFAULT_URL, GitHub
from perfguard.integrations.github.job import Annotation, Job, Level, WorkflowRunEvent, this_job
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import DEFAULT_GATE
from perfguard.report.escaping import escape
from perfguard.runner.arms.resolve import parse_arm
from perfguard.units import printable

if TYPE_CHECKING:
    from perfguard.config import LoadedConfig
    from perfguard.records.result import RunResult
    from perfguard.runner.session import Request

_AUTO = "auto"
_MOST_BUDGET = 2.0  # Times the budget that a second gate may take

_repository_option = click.option(
    "--repository", metavar="OWNER/NAME", help="The repository; default: GITHUB_REPOSITORY."
)


_label_option = click.option(
    "--accept-label",
    # click reads an empty variable as unset, but here it means that no label accepts.
    default=lambda: os.environ.get("PERFGUARD_ACTION_ACCEPT_LABEL", "perf-accepted"),
    metavar="LABEL",
    help="A pull request with this label passes, whatever the verdict; default: perf-accepted; empty: no label does.",
)


class _Budget(SecondsType):
    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _AUTO if value == _AUTO else super().convert(value, param, ctx)


@click.group("github")
def github_command() -> None:
    """Gate pull requests, comment on them and propose baselines, from a GitHub workflow.

    The action calls these commands; docs/github-action.md has workflows to copy.
    """


@github_command.command("gate")
@click.option(
    "--against",
    default="parent",
    show_default=True,
    envvar="PERFGUARD_ACTION_AGAINST",
    metavar="parent|merge-base|REV",
    help="What to compare the checked-out commit with.",
)
@click.option(
    "--output-dir",
    default="perfguard-out",
    show_default=True,
    envvar="PERFGUARD_ACTION_OUTPUT_DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the run: report.html, result, events, raw samples, traces, summary.",
)
@click.option(
    "--strict/--no-strict",
    default=False,
    show_default=True,
    envvar="PERFGUARD_ACTION_STRICT",
    help="Whether an inconclusive gate fails the job; otherwise it is a warning, unless fail-on says more.",
)
@click.option(
    "--budget",
    "budget_s",
    type=_Budget(),
    envvar="PERFGUARD_ACTION_BUDGET",
    metavar="SECONDS|auto",
    help="Wall-clock budget of measuring; default: the suite's. With `auto`, a gate that ends inconclusive is measured "
    "once more with the budget that it needs, at most twice the suite's.",
)
@_label_option
@shared.options_without_budget
@shared.setup_option
@shared.verdict_options
@shared.progress_options
def gate(**options: Any) -> None:
    """Measure the checked-out commit against the base, in interleaved blocks, and judge.

    Configuration, benchmarks, baselines and allow-list come from the base. Measured code runs in a sandbox, by
    bubblewrap or else by Landlock. The command refuses to start if a token is set. Exits like `perfguard gate`.
    """
    from perfguard.cli.output import PLAIN_WIDTH, plain_text
    from perfguard.report.terminal.result import render_result

    pull_requests.require_no_token(os.environ)
    job = this_job()
    failure: PerfguardError | None = None
    with _commands_stopped():
        try:
            result = _measured(job, options)
            click.echo(plain_text(render_result(result, width=PLAIN_WIDTH)))
        except PerfguardError as error:
            failure = error
            click.echo(f"perfguard: {error}", err=True)
    raise click.exceptions.Exit(_report_failure(failure) if failure is not None else _report(result, job, options))


@contextlib.contextmanager
def _commands_stopped() -> Iterator[None]:
    """While entered, nothing that is printed counts as a command to GitHub's runner.

    An exception leaves it so for the rest of the step: what is printed of it may hold foreign text too.
    """
    stop, resume = github_job.stop_and_resume()
    click.echo(stop)
    yield
    sys.stderr.flush()
    click.echo(resume)


def _measured(job: Job, options: dict[str, Any]) -> RunResult:
    from perfguard.gate.paired.compare_arms import compare_arms
    from perfguard.runner.process.sandboxing import Holder, holder
    from perfguard.runner.trusted_rules import require_own_folder

    pull_requests.require_fresh(options["output_dir"], shared.working_directory())
    revisions = pull_requests.revisions_of(shared.working_directory(), options["against"], job.base_ref)
    require_own_folder(shared.working_directory(), revisions.baseline, revisions.candidate)
    if holder() is not Holder.BUBBLEWRAP:  # which hides them
        pull_requests.require_no_credentials(shared.working_directory())
    unconfined = () if holder() else (fact("run.unconfined", severity=Severity.NOTABLE),)
    is_auto = options["budget_s"] == _AUTO
    given = {**options, "budget_s": None} if is_auto else options
    with shared.load_policy(
        {**given, "policy_from": revisions.baseline, "confine": True if holder() else None}
    ) as policy:
        loaded = policy.loaded if options["strict"] else _lenient(policy.loaded)
        gate = DEFAULT_GATE
        if is_auto:  # up to two gates, each with half of the error rate
            loaded = replace(loaded, config=replace(loaded.config, alpha=loaded.config.alpha / 2))
            gate = replace(DEFAULT_GATE, banks_identical=False)
        request = with_slips(build_request("gate", loaded, given, notes=(*policy.notes, *unconfined), gate=gate))
        arms = parse_arm(f"git:{revisions.baseline}"), parse_arm(f"git:{revisions.candidate}")
        result = compare_arms(request, *arms)
        if is_auto and (longer := _with_longer_budget(request, result)) is not None:
            result = compare_arms(longer, *arms)
        pull_requests.keep_run(result, options["output_dir"])
        _keep_report(loaded, result, options["output_dir"])
    return result


def _with_longer_budget(request: Request, result: RunResult) -> Request | None:
    """The same with the budget that an inconclusive gate needs, at most twice its own; None where that is no help."""
    if result.gate is None or result.exit_code == ExitCode.INTERRUPTED:
        return None
    max_blocks = request.loaded.config.max_blocks
    longer = longer_budget(result.gate, budget_s=request.budget_s, max_blocks=max_blocks)
    if longer is None or longer.blocks is not None or longer.budget_s > _MOST_BUDGET * request.budget_s:
        return None
    said = fact("gate.second_try", severity=Severity.NOTABLE, budget_s=longer.budget_s, first_s=request.budget_s)
    return replace(request, budget_s=longer.budget_s, notes=(*request.notes, said))


def _lenient(loaded: LoadedConfig) -> LoadedConfig:
    """The configuration, by which an inconclusive gate fails nothing, unless it says itself what does."""
    if "fail_on" in loaded.origins:
        return loaded
    fail_on = tuple(name for name in loaded.config.fail_on if name != "inconclusive")
    return replace(loaded, config=replace(loaded.config, fail_on=fail_on))


def _keep_report(loaded: LoadedConfig, result: RunResult, destination: Path) -> None:
    """Write the page beside the run; a measured gate does not fail without it."""
    from perfguard.report.pages.build import report_on
    from perfguard.report.pages.site import write_page

    try:
        write_page(destination / "report.html", report_on(loaded, (Path(result.folder),)), force=True)
    except PerfguardError as error:
        click.echo(f"perfguard: there is no report.html: {error}", err=True)


def _report(result: RunResult, job: Job, options: dict[str, Any]) -> int:
    """Write summary, annotations and outputs of the job; gives the exit code."""
    from perfguard.report.comment.comment import SUMMARY_CHARACTERS, CommentContext

    destination, label, pull = options["output_dir"], options["accept_label"], job.pull_request
    accepted = label if pull is not None and label in pull.labels else None
    context = CommentContext(
        marker=result.suite,
        head_sha=pull.head_sha if pull is not None else None,
        reproduce=pull_requests.reproducing(result),
        report_url=job.run_url(job.run_id) if job.run_id else None,
        accepted_by=accepted,
        accept_label=label or None,
    )
    _add_summary(pull_requests.summary_of(result, context, destination, limit=SUMMARY_CHARACTERS))
    for annotation in github_job.annotations_of(result):
        click.echo(github_job.annotation_line(annotation))
    code = 0 if options["exit_zero"] or (accepted and result.exit_code != ExitCode.INTERRUPTED) else result.exit_code
    outputs = {"verdict": result.verdict, "exit-code": str(code), "output-dir": str(destination)}
    _append("GITHUB_OUTPUT", github_job.output_lines(outputs))
    return code


def _report_failure(error: PerfguardError) -> int:
    if isinstance(error, NoRulesYetError):
        _append("GITHUB_OUTPUT", github_job.output_lines({"verdict": "none", "exit-code": "0", "output-dir": ""}))
        said = Annotation(level=Level.NOTICE, title="perfguard gates nothing yet", message=str(error))
        click.echo(github_job.annotation_line(said))
        _add_summary(f"### perfguard gates nothing yet\n\n{escape(str(error))}\n")
        return int(ExitCode.PASS)
    code = int(error.exit_code)
    _append("GITHUB_OUTPUT", github_job.output_lines({"verdict": "error", "exit-code": str(code), "output-dir": ""}))
    click.echo(
        github_job.annotation_line(Annotation(level=Level.ERROR, title="perfguard could not judge", message=str(error)))
    )
    _add_summary(f"### ❌ perfguard could not judge\n\n{escape(str(error))}\n")
    return code


def _add_summary(text: str) -> None:
    """Add Markdown to the job's summary; outside GitHub it goes to stdout."""
    if not _append("GITHUB_STEP_SUMMARY", text + "\n"):
        click.echo(text)


def _append(variable: str, text: str) -> bool:
    """Add text to the file that a variable names; whether it names one."""
    path = os.environ.get(variable)
    if not path:
        return False
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}, named by {variable}, cannot be written: {error.strerror}") from error
    return True


@github_command.command("comment")
@click.option("--run-id", type=int, metavar="N", help="The run that measured; default: the workflow_run event's.")
@click.option("--head-sha", metavar="SHA", help="The commit that it measured; default: the event's.")
@_repository_option
@_label_option
def comment(**options: Any) -> None:
    """Comment on the pull request that another workflow run measured, or update that comment.

    Runs on `workflow_run`, with a token and without a checkout. The artifact of the measuring run is only data: it is
    checked, escaped and rendered here. If the token may not comment, the comment goes to the job's summary.
    """
    from perfguard.integrations.github.comments import comment_on

    job = this_job()
    run, run_id, head_sha = job.workflow_run, options["run_id"], options["head_sha"]
    if run_id is not None and head_sha is not None:
        run = WorkflowRunEvent(id=run_id, attempt=None, head_sha=head_sha, head_repository=None)
    elif run is None or run_id is not None or head_sha is not None:
        raise UsageError("which run? start this on `workflow_run`, or give both --run-id and --head-sha")
    with contextlib.closing(_github(job, options["repository"])) as github:
        reported = comment_on(github, run, run_url=job.run_url(run.id), accept_label=options["accept_label"] or None)
    for one in reported:
        click.echo(printable(one.said))
        if one.unwritten is not None:
            _add_summary(one.unwritten)
            remark = Annotation(level=Level.WARNING, title="perfguard did not comment", message=one.said)
            click.echo(github_job.annotation_line(remark))
    for one in reported:
        if one.error is not None:
            raise one.error


@github_command.command("propose-baseline")
@click.option("-s", "--suite", help="The suite whose baseline was updated.")
@click.option("--into", metavar="BRANCH", help="Branch to propose it for; default: the branch of this workflow run.")
@click.option(
    "--branch",
    metavar="NAME",
    envvar="PERFGUARD_ACTION_BRANCH",
    help="Branch for the commit; default: perfguard/baseline-SUITE.",
)
@_repository_option
def propose(**options: Any) -> None:
    """Open a pull request with the changes of `perfguard baseline update`, or update the open one."""
    job = this_job()
    loaded = shared.load(options, keys=("suite",))
    into = options["into"] or job.ref_name
    if not into:
        raise UsageError("for which branch? give --into")
    branch = options["branch"] or f"perfguard/baseline-{loaded.config.suite}"
    with contextlib.closing(_github(job, options["repository"])) as github:
        proposed = pull_requests.propose_baseline(loaded, github, into=into, branch=branch)
    if proposed is None:
        click.echo("the baseline did not change; nothing to propose")
        return
    number, changed = proposed
    click.echo(f"proposed {changed} files as #{number}, from {branch}")
    _append("GITHUB_OUTPUT", github_job.output_lines({"pull-request": str(number), "branch": branch}))


def _github(job: Job, repository: str | None) -> GitHub:
    if job.token is None:
        raise UsageError("GITHUB_TOKEN is not set; pass the job's token: env: GITHUB_TOKEN: ${{ github.token }}")
    name = repository or job.repository
    if name is None:
        raise UsageError("which repository? set GITHUB_REPOSITORY, or give --repository OWNER/NAME")
    return GitHub(repository=name, token=job.token, url=job.api_url or DEFAULT_URL)
