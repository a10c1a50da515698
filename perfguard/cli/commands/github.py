"""`perfguard github`: what action.yml runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import load, load_policy, measuring_options, verdict_options, working_directory

if TYPE_CHECKING:
    from perfguard.cli.github_job import Job
    from perfguard.github.api import GitHub
    from perfguard.model.result import RunResult
    from perfguard.pipeline.pull_requests import Revisions

_repository_option = click.option(
    "--repository", metavar="OWNER/NAME", help="The repository; default: GITHUB_REPOSITORY."
)
_label_option = click.option(
    "--accept-label",
    default="perf-accepted",
    show_default=True,
    envvar="PERFGUARD_ACTION_ACCEPT_LABEL",
    metavar="LABEL",
    help="A pull request with this label passes whatever the verdict is.",
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
    help="What the checked-out commit is compared with.",
)
@click.option(
    "--output-dir",
    default="perfguard-out",
    show_default=True,
    envvar="PERFGUARD_ACTION_OUTPUT_DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Takes the run: result, events, raw samples, traces, summary.",
)
@_label_option
@measuring_options
@click.option("--setup", metavar="COMMAND", help="Installs each revision into a venv of its own: 'pip install .'.")
@verdict_options
def gate(**options: Any) -> None:
    """Measure the checked-out commit against the base, in interleaved blocks, and judge.

    Configuration, benchmarks, baselines and allow-list are the base's. Measured code is confined where the kernel can
    do that (Landlock), and the command refuses to start beside a token. Exits like `perfguard gate`.
    """
    from perfguard.cli.github_job import Annotation, Level, add_summary, annotate, set_outputs, this_job
    from perfguard.errors import PerfguardError
    from perfguard.pipeline.pull_requests import require_no_token, revisions_of

    require_no_token(os.environ)
    job = this_job()
    try:
        revisions = revisions_of(working_directory(), options["against"], job.base_ref)
        result = _measured(revisions, options)
    except PerfguardError as error:
        set_outputs({"verdict": "error", "exit-code": str(int(error.exit_code)), "output-dir": ""})
        annotate([Annotation(level=Level.ERROR, title="perfguard could not judge", message=str(error))])
        add_summary(_failure(str(error)))
        raise
    raise click.exceptions.Exit(_report(result, revisions, job, options))


def _measured(revisions: Revisions, options: dict[str, Any]) -> RunResult:
    from perfguard.cli.measuring import build_request
    from perfguard.pipeline.paired import compare_arms
    from perfguard.runner.arm_spec import parse_arm
    from perfguard.runner.launching import can_confine

    confines = can_confine()
    unconfined = () if confines else (_UNCONFINED,)
    with load_policy({**options, "policy_from": revisions.baseline, "confine": confines or None}) as policy:
        request = build_request("gate", policy.loaded, options, notes=(*policy.notes, *unconfined))
        arms = parse_arm(f"git:{revisions.baseline}"), parse_arm(f"git:{revisions.candidate}")
        return compare_arms(request, *arms)


_UNCONFINED = (
    "this kernel has no Landlock: measured code could have changed files of this job, the verdict among them; trust the "
    "verdict as far as you trust the author"
)


def _report(result: RunResult, revisions: Revisions, job: Job, options: dict[str, Any]) -> int:
    """Leave everything where the job and its reader find it; gives the exit code."""
    from perfguard.cli.github_job import add_summary, annotate, print_harmless, set_outputs
    from perfguard.cli.output import result_text
    from perfguard.github.remarks import annotations_of
    from perfguard.pipeline.pull_requests import keep_run, reproducing, summary_of
    from perfguard.report.comment import SUMMARY_CHARACTERS, CommentContext

    destination = options["output_dir"]
    label = options["accept_label"]
    accepted = label if job.pull_request is not None and label in job.pull_request.labels else None
    context = CommentContext(
        marker=result.suite,
        reproduce=reproducing(result),
        report_url=job.run_url(job.run_id) if job.run_id else None,
        accepted_by=accepted,
        accept_label=label or None,
    )
    keep_run(result, destination)
    add_summary(summary_of(result, context, destination, limit=SUMMARY_CHARACTERS))
    print_harmless(result_text(result))
    annotate(annotations_of(result))
    code = 0 if options["exit_zero"] or (accepted and result.exit_code != 130) else result.exit_code
    set_outputs({"verdict": result.verdict, "exit-code": str(code), "output-dir": str(destination)})
    return code


def _failure(reason: str) -> str:
    from perfguard.report.escaping import escape

    return f"### ❌ perfguard could not judge\n\n{escape(reason)}\n"


@command.command("comment")
@click.option("--run-id", type=int, metavar="N", help="The run that measured; default: the workflow_run event's.")
@click.option("--head-sha", metavar="SHA", help="The commit that it measured; default: the event's.")
@_repository_option
@_label_option
def comment(**options: Any) -> None:
    """Comment on the pull request that another workflow run measured; updates its own comment.

    Runs on `workflow_run`, with a token and without a checkout. What the measuring run left is taken for data: checked,
    escaped, and rendered here. Where the token may not comment, the comment goes to the job's summary.
    """
    from perfguard.cli.github_job import add_summary, this_job
    from perfguard.errors import UsageError
    from perfguard.pipeline.pull_requests import comment_on
    from perfguard.units import printable

    job = this_job()
    run_id, head_sha = job.workflow_run or (None, None)
    run_id, head_sha = options["run_id"] or run_id, options["head_sha"] or head_sha
    if run_id is None or head_sha is None:
        raise UsageError("which run? start this on `workflow_run`, or give --run-id and --head-sha")
    reported = comment_on(
        _github(job, options["repository"]),
        run_id=run_id,
        head_sha=head_sha,
        run_url=job.run_url(run_id),
        accept_label=options["accept_label"] or None,
    )
    for one in reported:
        click.echo(printable(one.said))
        if one.unwritten is not None:
            add_summary(one.unwritten)


@command.command("propose-baseline")
@click.option("-s", "--suite", help="The suite whose baseline was updated.")
@click.option("--into", metavar="BRANCH", help="Branch to propose it for; default: the one that the run is for.")
@click.option("--branch", metavar="NAME", envvar="PERFGUARD_ACTION_BRANCH", help="Branch that takes the commit; default: perfguard/baseline-SUITE.")
@_repository_option
def propose(**options: Any) -> None:
    """Open a pull request with what `perfguard baseline update` changed; rewrites the one that is open."""
    from perfguard.cli.github_job import set_outputs, this_job
    from perfguard.errors import UsageError
    from perfguard.pipeline.proposed_baselines import propose_baseline

    job = this_job()
    loaded = load(options, keys=("suite",))
    into = options["into"] or job.ref_name
    if not into:
        raise UsageError("for which branch? give --into")
    branch = options["branch"] or f"perfguard/baseline-{loaded.config.suite}"
    proposed = propose_baseline(loaded, _github(job, options["repository"]), into=into, branch=branch)
    if proposed is None:
        click.echo("the baseline did not change; nothing to propose")
        return
    click.echo(f"proposed {proposed.files} files as #{proposed.number}, from {proposed.branch}")
    set_outputs({"pull-request": str(proposed.number), "branch": proposed.branch})


def _github(job: Job, repository: str | None) -> GitHub:
    from perfguard.errors import UsageError
    from perfguard.github.api import DEFAULT_URL, GitHub

    if job.token is None:
        raise UsageError("GITHUB_TOKEN is not set; pass the job's token: env: GITHUB_TOKEN: ${{ github.token }}")
    name = repository or job.repository
    if name is None:
        raise UsageError("which repository? set GITHUB_REPOSITORY, or give --repository OWNER/NAME")
    return GitHub(repository=name, token=job.token, url=job.api_url or DEFAULT_URL)
