"""`perfguard github`: what action.yml runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import (
    load,
    load_policy,
    measuring_options,
    progress_options,
    setup_option,
    verdict_options,
    working_directory,
)
from perfguard.errors import ExitCode, PerfguardError
from perfguard.records.facts import Severity, fact

if TYPE_CHECKING:
    from perfguard.cli.github_job import Job
    from perfguard.config import LoadedConfig
    from perfguard.integrations.github.api import GitHub
    from perfguard.integrations.github.events import WorkflowRunEvent
    from perfguard.records.result import RunResult

_repository_option = click.option(
    "--repository", metavar="OWNER/NAME", help="The repository; default: GITHUB_REPOSITORY."
)
_LABEL_VARIABLE = "PERFGUARD_ACTION_ACCEPT_LABEL"


def _accept_label(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """The label. click reads an empty variable as unset, but here it means that no label accepts."""
    return os.environ.get(_LABEL_VARIABLE, "perf-accepted") if given is None else given


_label_option = click.option(
    "--accept-label",
    callback=_accept_label,
    metavar="LABEL",
    help="A pull request with this label passes, whatever the verdict; default: perf-accepted; empty: no label does.",
)


@click.group("github")
def command() -> None:
    """Gate pull requests, comment on them and propose baselines, from a GitHub workflow.

    The action calls these commands; docs/github-action.md has workflows to copy.
    """


@command.command("gate")
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
@_label_option
@measuring_options
@setup_option
@verdict_options
@progress_options
def gate(**options: Any) -> None:
    """Measure the checked-out commit against the base, in interleaved blocks, and judge.

    Configuration, benchmarks, baselines and allow-list come from the base. Measured code is confined if the kernel
    supports that (Landlock). The command refuses to start if a token is set. Exits like `perfguard gate`.
    """
    from perfguard.cli.github_job import commands_stopped, this_job
    from perfguard.integrations.github.pull_requests import require_no_token

    require_no_token(os.environ)
    job = this_job()
    failure: PerfguardError | None = None
    with commands_stopped():
        try:
            result = _measured(job, options)
            _print(result)
        except PerfguardError as error:
            failure = error
            click.echo(f"perfguard: {error}", err=True)
    raise click.exceptions.Exit(_report_failure(failure) if failure is not None else _report(result, job, options))


def _measured(job: Job, options: dict[str, Any]) -> RunResult:
    from perfguard.cli.measuring import build_request
    from perfguard.gate.paired.compare_arms import compare_arms
    from perfguard.integrations.github.pull_requests import keep_run, require_fresh, require_own_folder, revisions_of
    from perfguard.runner.arms.resolve import parse_arm
    from perfguard.runner.process.launching import can_confine

    require_fresh(options["output_dir"], working_directory())
    revisions = revisions_of(working_directory(), options["against"], job.base_ref)
    require_own_folder(working_directory(), revisions)
    confines = can_confine()
    unconfined = () if confines else (_UNCONFINED,)
    with load_policy({**options, "policy_from": revisions.baseline, "confine": confines or None}) as policy:
        request = build_request("gate", policy.loaded, options, notes=(*policy.notes, *unconfined))
        arms = parse_arm(f"git:{revisions.baseline}"), parse_arm(f"git:{revisions.candidate}")
        result = compare_arms(request, *arms)
        keep_run(result, options["output_dir"])
        _keep_report(policy.loaded, result, options["output_dir"])
    return result


def _keep_report(loaded: LoadedConfig, result: RunResult, destination: Path) -> None:
    """Write the page beside the run; a measured gate does not fail without it."""
    from perfguard.report.pages.build import report_on
    from perfguard.report.pages.pages import write_page

    try:
        write_page(destination / "report.html", report_on(loaded, (Path(result.folder),)), force=True)
    except PerfguardError as error:
        click.echo(f"perfguard: there is no report.html: {error}", err=True)


_UNCONFINED = fact("run.unconfined", severity=Severity.NOTABLE)


def _print(result: RunResult) -> None:
    from perfguard.cli.output import result_text

    click.echo(result_text(result))


def _report(result: RunResult, job: Job, options: dict[str, Any]) -> int:
    """Write summary, annotations and outputs of the job; gives the exit code."""
    from perfguard.cli.github_job import add_summary, annotate, set_outputs
    from perfguard.integrations.github.pull_requests import reproducing, summary_of
    from perfguard.integrations.github.workflow_commands import annotations_of
    from perfguard.report.comment.comment import SUMMARY_CHARACTERS, CommentContext

    destination, label, pull = options["output_dir"], options["accept_label"], job.pull_request
    accepted = label if pull is not None and label in pull.labels else None
    context = CommentContext(
        marker=result.suite,
        head_sha=pull.head_sha if pull is not None else None,
        reproduce=reproducing(result),
        report_url=job.run_url(job.run_id) if job.run_id else None,
        accepted_by=accepted,
        accept_label=label or None,
    )
    add_summary(summary_of(result, context, destination, limit=SUMMARY_CHARACTERS))
    annotate(annotations_of(result))
    code = 0 if options["exit_zero"] or (accepted and result.exit_code != ExitCode.INTERRUPTED) else result.exit_code
    set_outputs({"verdict": result.verdict, "exit-code": str(code), "output-dir": str(destination)})
    return code


def _report_failure(error: PerfguardError) -> int:
    from perfguard.cli.github_job import Annotation, Level, add_summary, annotate, set_outputs
    from perfguard.report.escaping import escape

    code = int(error.exit_code)
    set_outputs({"verdict": "error", "exit-code": str(code), "output-dir": ""})
    annotate([Annotation(level=Level.ERROR, title="perfguard could not judge", message=str(error))])
    add_summary(f"### ❌ perfguard could not judge\n\n{escape(str(error))}\n")
    return code


@command.command("comment")
@click.option("--run-id", type=int, metavar="N", help="The run that measured; default: the workflow_run event's.")
@click.option("--head-sha", metavar="SHA", help="The commit that it measured; default: the event's.")
@_repository_option
@_label_option
def comment(**options: Any) -> None:
    """Comment on the pull request that another workflow run measured, or update that comment.

    Runs on `workflow_run`, with a token and without a checkout. The artifact of the measuring run is only data: it is
    checked, escaped and rendered here. If the token may not comment, the comment goes to the job's summary.
    """
    from perfguard.cli.github_job import Annotation, Level, add_summary, annotate, this_job
    from perfguard.integrations.github.comments import comment_on
    from perfguard.units import printable

    job = this_job()
    run = _measuring_run(job, options["run_id"], options["head_sha"])
    with contextlib.closing(_github(job, options["repository"])) as github:
        reported = comment_on(github, run, run_url=job.run_url(run.id), accept_label=options["accept_label"] or None)
    for one in reported:
        click.echo(printable(one.said))
        if one.unwritten is not None:
            add_summary(one.unwritten)
            annotate([Annotation(level=Level.WARNING, title="perfguard did not comment", message=one.said)])
    for one in reported:
        if one.error is not None:
            raise one.error


def _measuring_run(job: Job, run_id: int | None, head_sha: str | None) -> WorkflowRunEvent:
    from perfguard.errors import UsageError
    from perfguard.integrations.github.events import WorkflowRunEvent

    if run_id is not None and head_sha is not None:
        return WorkflowRunEvent(id=run_id, attempt=None, head_sha=head_sha, head_repository=None)
    if job.workflow_run is None or run_id is not None or head_sha is not None:
        raise UsageError("which run? start this on `workflow_run`, or give both --run-id and --head-sha")
    return job.workflow_run


@command.command("propose-baseline")
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
    from perfguard.cli.github_job import set_outputs, this_job
    from perfguard.errors import UsageError
    from perfguard.integrations.github.proposed_baselines import propose_baseline

    job = this_job()
    loaded = load(options, keys=("suite",))
    into = options["into"] or job.ref_name
    if not into:
        raise UsageError("for which branch? give --into")
    branch = options["branch"] or f"perfguard/baseline-{loaded.config.suite}"
    with contextlib.closing(_github(job, options["repository"])) as github:
        proposed = propose_baseline(loaded, github, into=into, branch=branch)
    if proposed is None:
        click.echo("the baseline did not change; nothing to propose")
        return
    click.echo(f"proposed {proposed.files} files as #{proposed.number}, from {proposed.branch}")
    set_outputs({"pull-request": str(proposed.number), "branch": proposed.branch})


def _github(job: Job, repository: str | None) -> GitHub:
    from perfguard.errors import UsageError
    from perfguard.integrations.github.api import DEFAULT_URL, GitHub

    if job.token is None:
        raise UsageError("GITHUB_TOKEN is not set; pass the job's token: env: GITHUB_TOKEN: ${{ github.token }}")
    name = repository or job.repository
    if name is None:
        raise UsageError("which repository? set GITHUB_REPOSITORY, or give --repository OWNER/NAME")
    return GitHub(repository=name, token=job.token, url=job.api_url or DEFAULT_URL)
