"""Answers to coding agents: the texts that the commands print, as tools of the Model Context Protocol."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

from perfguard import __version__
from perfguard.cli.output import PLAIN_WIDTH, plain_text
from perfguard.config import LoadedConfig
from perfguard.errors import NothingSelectedError, PerfguardError, UsageError
from perfguard.records.result import RunResult
from perfguard.units import printable

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

P = ParamSpec("P")

_INSTRUCTIONS = """\
perfguard judges whether a change made PyTorch code slower on this CPU. Begin with latest_verdict. Ask culprits for a
case that regressed: it names the ops, the source lines and what each costs. explain says what a verdict or a code
means. These tools only read recorded runs; `perfguard gate` on the command line measures."""


def build_server(loaded: LoadedConfig) -> MCPServer:
    """A server whose tools read a project's recorded runs, and change nothing."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    server = MCPServer("perfguard", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")
    annotations = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

    def tool(answer: Callable[P, str]) -> Callable[P, str]:
        @functools.wraps(answer)
        def answered(*arguments: P.args, **named: P.kwargs) -> str:
            try:
                return answer(*arguments, **named)
            except PerfguardError as error:
                raise ToolError(printable(str(error))) from None

        return server.tool(annotations=annotations, structured_output=False)(answered)

    @tool
    def latest_verdict(run: str | None = None) -> str:
        """The verdict of a recorded run, a line for each case: effect, interval, culprits. Default: the latest run."""
        return verdict_text(_result_of(loaded, run))

    @tool
    def culprits(case: str, run: str | None = None) -> str:
        """What made a case slower: ops, source lines, cost, changed op counts, advice. Default: the latest run."""
        return culprits_text(_result_of(loaded, run), case)

    @tool
    def case_history(case: str, last: int = 40) -> str:
        """A case in each of its last recorded runs, and the commits at which its level changed."""
        return history_text(loaded, case, last)

    @tool
    def explain(word: str) -> str:
        """What a verdict, an exit code, or a code such as `ops.added` means, and what to do about it."""
        from perfguard.cli.commands.explain import paragraph
        from perfguard.report.explanations import explain as explained

        return "\n\n".join(map(paragraph, explained(word)))

    del latest_verdict, culprits, case_history, explain  # the server has them
    return server


def verdict_text(result: RunResult) -> str:
    """What `perfguard show` prints."""
    from perfguard.report.terminal.result import render_result

    return plain_text(render_result(result, width=PLAIN_WIDTH))


def culprits_text(result: RunResult, case: str) -> str:
    """The verdict of a case, its culprits, each changed op count, and advice.

    Raises:
        NothingSelectedError: The run has no such case.
    """
    from perfguard.benchmarks.selection import did_you_mean
    from perfguard.report.culprits import beyond_culprits, change_text
    from perfguard.report.lines import attribution_of, names_in, ops_lines, signal_lines, unchanged_lines
    from perfguard.report.messages.catalog import describe_all
    from perfguard.report.rows import case_rows
    from perfguard.report.terminal.findings import render_findings
    from perfguard.report.terminal.ops import render_attribution
    from perfguard.report.terminal.tables import texts

    names = names_in(result)
    verdicts = result.gate.verdicts if result.gate is not None else ()
    verdict = next((each for each in verdicts if case in (each.case_id, names.get(each.case_id))), None)
    if verdict is None:
        hint = did_you_mean(case, [*names, *names.values()])
        raise NothingSelectedError(f"run {result.run_id} has no verdict on a case {case!r}{hint}")
    (row,) = case_rows([verdict], names)
    changes, attribution = result.op_count_changes.get(verdict.case_id, ()), attribution_of(verdict, result)
    parts = texts(
        f"{row.name}: {row.outcome}; {describe_all(verdict.reasons)}",
        *signal_lines(verdict),
        *ops_lines(verdict, result),
        *(f"changed: {change_text(change)}" for change in beyond_culprits(changes, attribution)),
        *unchanged_lines(verdict, result),
    )
    if attribution is not None:
        parts += render_attribution(attribution, name=row.name)
    return plain_text([*parts, *render_findings(result.findings.get(verdict.case_id, ()))])


def history_text(loaded: LoadedConfig, case: str, last: int) -> str:
    """What `perfguard history CASE` prints.

    Raises:
        NothingSelectedError: No recorded run holds such a case.
    """
    from perfguard.cli.recording import read_cases, without_removed
    from perfguard.history.project_names import project_name
    from perfguard.history.reading import history_of
    from perfguard.report.terminal.history import render_history

    if last < 1:
        raise UsageError(f"last must be at least 1, not {last}")
    with history_of(loaded) as database:
        found, problems = read_cases(database, project_name(loaded), case)
    found = without_removed(loaded, found, keeps_points=True)
    return "\n".join([plain_text(render_history(found, last=last)), *map(printable, problems)])


def _result_of(loaded: LoadedConfig, run: str | None) -> RunResult:
    from perfguard.gate.show import find_run, show_run
    from perfguard.runner.run_folder import mode_of

    folder = find_run(loaded, run)
    if (mode := mode_of(folder)) in ("training", "task", "audit"):
        raise UsageError(f"run {folder.name} is no gate but a {mode}; `perfguard show {folder.name}` prints it")
    return show_run(loaded, folder)
