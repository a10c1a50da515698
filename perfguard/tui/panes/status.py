"""One line of what to know: what was just said, what is wrong, what filters, what the reader itself costs."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.report.messages.catalog import describe
from perfguard.tui.drawing.spans import Line, Role, Span, cut, fitted, line, width_of
from perfguard.tui.pace import BUDGET_RATIO
from perfguard.tui.panes.head import problem_line
from perfguard.units import format_ratio, printable
from perfguard.watch.view.run_view import RunState, RunView

_SENTENCES = {
    RunState.WAITING: "waiting for the first event",
    RunState.SILENT: "it probably died: it has said nothing for long; perfguard show judges what was measured",
    RunState.GONE: "its folder vanished; what was read is still shown",
}
"""What there is to say of a run that does not go on."""
_ENDED_BADLY = (RunState.SILENT, RunState.GONE)
"""Graver than what is wrong with the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """What the line says beside the run's problems."""

    said: str = ""
    """What was just done, or why not."""
    filter_text: str = ""
    """The filter that is on."""
    is_paused: bool = False
    """Whether nothing is painted."""
    is_replay: bool = False
    """Whether a recording is played again."""
    interval_s: float = 1.0
    """Seconds between two looks."""
    own_ratio: float | None = None
    """The reader's own CPU time over wall time."""
    hint: str = ""
    """What to say while there is nothing to read."""


def status_line(view: RunView, facts: StatusFacts, width: int) -> Line:
    """The most urgent thing at the left; how the reader works at the right."""
    right = _reader(facts)
    room = width - width_of(right)
    if room < 20:
        right, room = (), width
    return (*fitted(_left(view, facts, room), room), *right)


def _left(view: RunView, facts: StatusFacts, width: int) -> Line:
    """The first of these that there is."""
    if facts.is_paused:
        what = "the replay stands" if facts.is_replay else "nothing is painted"
        rest = ", the run goes on" if view.outcome is None and not facts.is_replay else ""
        return line(Span(f" paused: {what}{rest}; space goes on", Role.OPEN))
    if view.problems and not facts.said and view.state not in _ENDED_BADLY:
        return problem_line(view.problems, width)
    if facts.filter_text and not facts.said:
        return line(Span(f" /{facts.filter_text}", Role.ACCENT), Span("  esc shows all", Role.MUTED))
    text, role = _sentence(view, facts)
    return line(Span(f" {cut(text, width - 1)}", role))


def _sentence(view: RunView, facts: StatusFacts) -> tuple[str, Role]:
    if facts.said:
        return facts.said, Role.ACCENT
    if facts.hint and view.state is RunState.WAITING:
        return facts.hint, Role.OPEN
    if view.state in _SENTENCES:
        return _SENTENCES[view.state], Role.MUTED if view.state is RunState.WAITING else Role.BROKEN
    return (printable(describe(view.notes[-1])) if view.notes and view.outcome is None else ""), Role.MUTED


def _reader(facts: StatusFacts) -> Line:
    every = f"every {facts.interval_s:g} s"
    if facts.own_ratio is None:
        return line(Span(f" {every} ", Role.MUTED))
    cost = f"reader {format_ratio(facts.own_ratio)} of a CPU, "
    if facts.own_ratio > BUDGET_RATIO:
        return line(Span(f" ! {cost}more than it should; - refreshes less often ", Role.OPEN))
    return line(Span(f" {cost}{every} ", Role.MUTED))
