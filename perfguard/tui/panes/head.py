"""The top of every screen: screens by number, the run and how far it is, verdict so far, the state of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from perfguard.records.facts import Fact
from perfguard.records.run import Arm
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, cut, fitted, line, shortened, width_of
from perfguard.tui.drawing.verdicts import mark_of_gate, mark_of_state, tally
from perfguard.units import format_change, format_duration, format_ratio, format_share, printable
from perfguard.watch.view.run_view import Progress, RunState, RunView

SCREENS = ("Live", "Compare", "Ops", "History", "Host", "Log")
"""In the order of their keys."""
_NARROW = 77
"""Below so many columns only the name of the active screen is written out."""
_BAR_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFacts:
    """What the head says beside the run."""

    active: str
    """Name of the screen that is shown."""
    glyphs: Glyphs
    """What to draw with."""
    keys: tuple[str, ...] = ("1", "2", "3", "4", "5", "6")
    """Keys of the screens."""
    is_swapped: bool = False
    """Whether effects are shown the other way round."""
    host: str = ""
    """Frequency, temperature and load, in words; empty where the run is elsewhere."""
    replay: str = ""
    """Place and speed of a replay, in words; empty for a run that is read itself."""


def head_lines(view: RunView, facts: HeadFacts, width: int, height: int) -> list[Line]:
    """As many lines as there is room for, the most important ones first.

    Args:
        view: The run.
        facts: Everything else.
        width: Columns.
        height: Lines, 1 to 4.
    """
    lines = [
        _first_line(view, facts, width),
        _run_line(view, facts, width),
        _beside(_verdict(view), EMPTY if height > 3 else _conditions(view, facts), width),
        _beside(_conditions(view, facts), EMPTY, width),
    ]
    return lines[:height]


def _first_line(view: RunView, facts: HeadFacts, width: int) -> Line:
    """All screens, and as much of the state as there is room for; the state itself rather than the replay's."""
    screens = _screens(facts, width)
    room = width - width_of(screens)
    if room <= 0:
        return fitted(screens, width)
    state = next((known for known in _states(view, facts) if width_of(known) <= room), _states(view, facts)[-1])
    return (*screens, *fitted(state, room, align_right=True))


def screen_at(x: int, facts: HeadFacts, width: int) -> str | None:
    """Name of the screen whose number stands at a column of the first line; None elsewhere."""
    at = 0
    for name, span in zip((None, *SCREENS), _screens(facts, width), strict=True):
        at += cell_len(span.text)
        if x < at:
            return name
    return None


def arms_text(view: RunView, *, is_swapped: bool = False) -> str:
    """`git:HEAD → dir:.`; one text where there is one arm."""
    texts = {arm.arm: arm.text for arm in view.arms}
    first, second = texts.get(Arm.BASELINE), texts.get(Arm.CANDIDATE)
    if is_swapped:
        first, second = second, first
    return " → ".join(text for text in (first, second) if text)


def progress_share(progress: Progress) -> float | None:
    """Part of the run that is done, by its planned blocks or by its budget: it ends with whichever is used up first."""
    shares = []
    if progress.blocks_planned:
        shares.append(progress.blocks_finished / progress.blocks_planned)
    if progress.budget_s > 0:
        shares.append(progress.elapsed_s / progress.budget_s)
    return min(1.0, max(shares)) if shares else None


def progress_text(progress: Progress) -> str:
    """`block 4 of 12, ETA at most 3 min 10 s`; no word on what is unknown."""
    parts = []
    if progress.block is not None:
        of = f" of {progress.blocks_planned}" if progress.blocks_planned else ""
        parts.append(f"block {progress.block + 1}{of}")
    if progress.sample_index is not None and progress.case_id is not None:
        parts.append(f"sample {progress.sample_index}")
    if progress.left_s is not None:
        parts.append(f"at most {format_duration(progress.left_s)} left")
    elif not parts:
        parts.append(f"{format_duration(progress.elapsed_s)} so far")
    return ", ".join(parts)


def _screens(facts: HeadFacts, width: int) -> Line:
    parts: list[Span] = [Span(" perfguard  " if width >= _NARROW else " ", Role.ACCENT)]
    for key, name in zip(facts.keys, SCREENS, strict=True):
        is_active = name == facts.active
        text = f"{key} {name}" if is_active or width >= _NARROW else key
        parts.append(Span(f"[{text}]" if is_active else f" {text} ", Role.ACTIVE if is_active else Role.MUTED))
    return tuple(parts)


def _states(view: RunView, facts: HeadFacts) -> list[Line]:
    """Replay and state, the state, its sign."""
    mark = mark_of_state(view.state)
    state = line(Span(f"{mark.sign} {mark.word}", mark.role), " ")
    replay = line(Span(facts.replay, Role.ACCENT), "  ") if facts.replay else EMPTY
    short = line(Span("replay", Role.ACCENT), " ") if facts.replay else EMPTY
    return [(*replay, *state), (*short, *state), state, line(Span(mark.sign, mark.role))]


def _run_line(view: RunView, facts: HeadFacts, width: int) -> Line:
    """The run at the left, as much about its progress at the right as there is room for."""
    left = _run(view, facts, width)
    choices = _progress(view, facts, width)
    right = next((choice for choice in choices if width_of(left) + width_of(choice) < width), choices[-1])
    return _beside(left, right, width)


def _run(view: RunView, facts: HeadFacts, width: int) -> Line:
    if view.run_id is None:
        return line(Span(" no event of a run yet", Role.MUTED))
    arms = arms_text(view, is_swapped=facts.is_swapped)
    parts: list[str | Span] = [" ", Span(view.suite or "run", Role.STRONG)]
    if arms:
        parts += ["  ", shortened(arms, max(12, width // 2))]
    if facts.is_swapped:
        parts.append(Span("  arms swapped", Role.OPEN))
    if view.is_identical:
        parts.append(Span("  identical arms", Role.OPEN))
    return line(*parts)


def _progress(view: RunView, facts: HeadFacts, width: int) -> list[Line]:
    """What could be said, the longest first: case, bar and words; bar and words; words."""
    progress = view.progress
    if view.state is RunState.FINISHED or progress is None:
        return [line(Span(f"{view.run_id or ''} ", Role.MUTED))]
    words = f"{progress_text(progress)} "
    share = progress_share(progress)
    bar = [*_bar(share, facts.glyphs), Span("  ")] if share is not None else []
    timed = [case.title for case in view.cases if case.case_id == progress.case_id]
    case = [Span(f"{shortened(printable(name), max(16, width // 4))}  ", Role.MUTED) for name in timed]
    return [line(*case, *bar, words), line(*bar, words), line(words)]


def _bar(share: float, glyphs: Glyphs) -> list[Span]:
    done = round(share * _BAR_WIDTH)
    return [
        Span(glyphs.done * done, Role.ACCENT),
        Span(glyphs.ahead * (_BAR_WIDTH - done), Role.AXIS),
        Span(f" {format_share(share)}", Role.MUTED),
    ]


def _verdict(view: RunView) -> Line:
    if view.outcome is not None:
        mark = mark_of_gate(view.outcome)
        return line(" ", Span(f"{mark.sign} {mark.word}: {describe_all(view.reasons)}", mark.role))
    if not view.cases:
        return line(Span(" no case yet", Role.MUTED))
    return (Span(" "), *tally(view.cases))


def _conditions(view: RunView, facts: HeadFacts) -> Line:
    """Stolen time and control workload from the events, the rest from this machine."""
    parts = []
    if view.steal_ratio is not None:
        parts.append(f"steal {format_ratio(view.steal_ratio)}")
    if view.control_ratio is not None:
        parts.append(f"control {format_change(view.control_ratio)}")
    parts += [facts.host] if facts.host else []
    return line(Span(f" {'  '.join(parts)} ", Role.MUTED)) if parts else EMPTY


def _beside(left: Line, right: Line, width: int) -> Line:
    """Both in one line, the right one at its end; the left one is cut first, the right one never where it fits."""
    room = width - width_of(right)
    if room < min(width_of(left), 12):
        return fitted(left, width)
    return (*fitted(left, room), *right)


def problem_line(problems: Sequence[Fact], width: int) -> Line:
    """The latest thing that is wrong with the recording, and how many there are."""
    if not problems:
        return EMPTY
    more = f" (and {len(problems) - 1} more: see the log)" if len(problems) > 1 else ""
    return line(Span(f" ! {cut(printable(describe(problems[-1])), max(10, width - len(more) - 4))}{more}", Role.BROKEN))
