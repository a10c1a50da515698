"""What frames every screen: above it the run and how far it is, below it one line of what to know."""

from __future__ import annotations

from msgspec import Struct
from rich.cells import cell_len

from perfguard.records.run import Arm
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.tui.drawing.spans import EMPTY, UNICODE, Glyphs, Line, Role, Span, cut, fitted, line, shortened, width_of
from perfguard.tui.drawing.verdicts import RUN_STATES, mark_of_gate, tally
from perfguard.tui.pace import BUDGET_RATIO
from perfguard.units import format_change, format_duration, format_ratio, format_share, printable
from perfguard.watch.view.run_view import Progress, RunState, RunView

SCREENS = ("Live", "Compare", "Ops", "History", "Host", "Log", "Fleet", "Tune")  # In the order of their keys
_NARROW = 80  # Below so many columns only the name of the active screen is written out
_TITLED, _TITLED_REPLAY = 100, 128  # From so many columns on the application is named, too
_BAR_WIDTH = 16
_BESIDE_BAR = 8  # Columns left and right of a bar, for its share
_SENTENCES = {
    RunState.WAITING: "waiting for the first event",
    RunState.SILENT: "it probably died: it has said nothing for long; perfguard show judges what was measured",
    RunState.GONE: "its folder vanished; what was read is still shown",
}
"""What there is to say of a run that does not go on."""
_ENDED_BADLY = (RunState.SILENT, RunState.GONE)  # More urgent than what is wrong with the recording


class FrameFacts(Struct, frozen=True, kw_only=True):
    """What the frame says beside the run."""

    active: str = "Live"  # Name of the screen that is shown
    keys: tuple[str, ...] = ("1", "2", "3", "4", "5", "6", "7", "8")  # Keys of the screens
    glyphs: Glyphs = UNICODE
    is_swapped: bool = False  # Whether effects are shown the other way round
    host: str = ""  # Frequency, temperature and load, in words; empty where the run is elsewhere
    replay: str = ""  # Place and speed of a replay, in words; empty for a run that is read itself
    said: str = ""  # What was just done, or why not
    filter_text: str = ""
    is_paused: bool = False  # Whether nothing is painted
    interval_s: float = 1.0  # Seconds between two looks
    own_ratio: float | None = None  # The reader's own CPU time over wall time
    hint: str = ""  # What to say while there is nothing to read


def head_lines(view: RunView, facts: FrameFacts, width: int, height: int) -> list[Line]:
    """As many lines (1 to 4) as there is room for, the most important ones first."""
    conditions, is_tall = _conditions(view, facts), height > 3
    lines = [_first_line(view, facts, width), _run_line(view, facts, width, has_bar=not is_tall)]
    if is_tall and view.outcome is not None:
        lines += [_verdict(view), _beside((Span(" "), *tally(view.cases)), conditions, width)]
    else:
        lines += [_beside(_verdict(view), conditions, width), _bar(view, facts, width - _BESIDE_BAR)]
    return lines[:height]


def _first_line(view: RunView, facts: FrameFacts, width: int) -> Line:
    """All screens, and as much of the state as there is room for; the state itself rather than the replay's."""
    screens = _screens(facts, width)
    room = width - width_of(screens)
    if room <= 0:
        return fitted(screens, width)
    mark = RUN_STATES[view.state]
    states = [line(mark.span, " "), line(mark.span), line(Span(mark.sign, mark.role))]
    if facts.replay:
        replays = (line(Span(facts.replay, Role.ACCENT), "  "), line(Span("replay", Role.ACCENT), " "))
        states = [*((*replay, *states[0]) for replay in replays), *states]
    return (*screens, *fitted(_longest(states, room), room, align_right=True))


def _longest(choices: list[Line], room: int) -> Line:
    """The first one that fits; the last one where none does."""
    return next((choice for choice in choices if width_of(choice) <= room), choices[-1])


def _screens(facts: FrameFacts, width: int) -> Line:
    parts: list[Span] = [
        Span(" perfguard " if width >= (_TITLED_REPLAY if facts.replay else _TITLED) else "", Role.ACCENT)
    ]
    for key, name in zip(facts.keys, SCREENS, strict=True):
        is_active = name == facts.active
        text = f"{key} {name}" if is_active or width >= _NARROW else key
        parts.append(Span(f"[{text}]", Role.ACTIVE) if is_active else Span(f" {text} ", Role.MUTED))
    return tuple(parts)


def screen_at(x: int, facts: FrameFacts, width: int) -> str | None:
    """Name of the screen whose number stands at a column of the first line; None elsewhere."""
    at = 0
    for name, span in zip((None, *SCREENS), _screens(facts, width), strict=True):
        at += cell_len(span.text)
        if x < at:
            return name
    return None


def elapsed_text(seconds: float) -> str:
    """`1:02:03`, as clocks count."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def progress_share(progress: Progress) -> float | None:
    """Part of the run that is done, by its planned blocks or by its budget: it ends with whichever is used up first."""
    shares = []
    if progress.blocks_planned:
        shares.append(progress.blocks_finished / progress.blocks_planned)
    if progress.budget_s > 0:
        shares.append(progress.elapsed_s / progress.budget_s)
    return min(1.0, max(shares)) if shares else None


def _progress_text(progress: Progress) -> str:
    """`block 4 of 12, at most 3 min 10 s left`; no word on what is unknown."""
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


def _run_line(view: RunView, facts: FrameFacts, width: int, *, has_bar: bool) -> Line:
    """The run at the left, as much about its progress at the right as there is room for."""
    left = _run(view, facts, width)
    right = _longest(_progress(view, facts, width, has_bar=has_bar), width - width_of(left) - 1)
    return _beside(left, right, width)


def _run(view: RunView, facts: FrameFacts, width: int) -> Line:
    if view.run_id is None:
        return line(Span(" no event of a run yet", Role.MUTED))
    texts = {arm.arm: arm.text for arm in view.arms}
    arms = [texts[arm] for arm in (Arm.BASELINE, Arm.CANDIDATE) if texts.get(arm)]
    arms_text = " → ".join(reversed(arms) if facts.is_swapped else arms)
    parts: list[str | Span] = [" ", Span(view.suite or "run", Role.STRONG)]
    if arms_text:
        parts += ["  ", shortened(arms_text, max(12, width // 2))]
    if facts.is_swapped:
        parts.append(Span("  arms swapped", Role.OPEN))
    if view.is_identical:
        parts.append(Span("  identical arms", Role.OPEN))
    return line(*parts)


def _progress(view: RunView, facts: FrameFacts, width: int, *, has_bar: bool) -> list[Line]:
    """What could be said, the longest first: case, bar and words; bar and words; words."""
    progress = view.progress
    if view.state is RunState.FINISHED or progress is None:
        return [line(Span(f"{view.run_id or ''} ", Role.MUTED))]
    words = f"{_progress_text(progress)} "
    bar = (*_bar(view, facts, _BAR_WIDTH), Span("  ")) if has_bar else ()
    timed = [case.title for case in view.cases if case.case_id == progress.case_id]
    case = [Span(f"{shortened(printable(name), max(16, width // 4))}  ", Role.MUTED) for name in timed]
    return [line(*case, *bar, words), line(*bar, words), line(words)]


def _bar(view: RunView, facts: FrameFacts, width: int) -> Line:
    """` ━━━━━─────── 37 %`, the bar itself being `width` wide; empty where nothing is known of the run's end."""
    share = progress_share(view.progress) if view.progress is not None else None
    if share is None or view.state is RunState.FINISHED:
        return EMPTY
    done = round(share * width)
    rest = facts.glyphs.horizontal * (width - done)
    return line(
        " ",
        Span(facts.glyphs.bar * done, Role.ACCENT),
        Span(rest, Role.AXIS),
        Span(f" {format_share(share)}", Role.MUTED),
    )


def _verdict(view: RunView) -> Line:
    if view.outcome is not None:
        mark = mark_of_gate(view.outcome)
        said = describe_all(view.reasons)
        word = "" if mark.word in said else f"{mark.word}: "
        return line(" ", Span(f"{mark.sign} {word}{said}", mark.role))
    if not view.cases:
        return EMPTY if view.training is not None or view.task is not None else line(Span(" no case yet", Role.MUTED))
    return (Span(" "), *tally(view.cases))


def _conditions(view: RunView, facts: FrameFacts) -> Line:
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


def status_line(view: RunView, facts: FrameFacts, width: int) -> Line:
    """The most urgent thing at the left; how the reader works at the right."""
    right = EMPTY if view.state is RunState.FINISHED and facts.own_ratio is None else _reader(facts)
    room = width - width_of(right)
    if room < 20:
        right, room = (), width
    return (*fitted(_most_urgent(view, facts, room), room), *right)


def _most_urgent(view: RunView, facts: FrameFacts, width: int) -> Line:
    if facts.is_paused:
        what = "the replay stands" if facts.replay else "nothing is painted"
        rest = ", the run goes on" if view.outcome is None and not facts.replay else ""
        return line(Span(f" paused: {what}{rest}; space goes on", Role.OPEN))
    if view.problems and not facts.said and view.state not in _ENDED_BADLY:
        count = len(view.problems) - 1
        more = f" (and {count} more: see the log)" if count else ""
        problem = cut(printable(describe(view.problems[-1])), max(10, width - len(more) - 4))
        return line(Span(f" ! {problem}{more}", Role.BROKEN))
    if facts.filter_text and not facts.said:
        return line(Span(f" /{facts.filter_text}", Role.ACCENT), Span("  esc shows all", Role.MUTED))
    text, role = _sentence(view, facts)
    return line(Span(f" {cut(text, width - 1)}", role))


def _sentence(view: RunView, facts: FrameFacts) -> tuple[str, Role]:
    if facts.said:
        return facts.said, Role.ACCENT
    if facts.hint and view.state is RunState.WAITING:
        return facts.hint, Role.OPEN
    if view.state in _SENTENCES:
        return _SENTENCES[view.state], Role.MUTED if view.state is RunState.WAITING else Role.BROKEN
    return (printable(describe(view.notes[-1])) if view.notes and view.outcome is None else ""), Role.MUTED


def _reader(facts: FrameFacts) -> Line:
    every = f"every {facts.interval_s:g} s"
    if facts.own_ratio is None:
        return line(Span(f" {every} ", Role.MUTED))
    cost = f"reader {format_ratio(facts.own_ratio)} of a CPU, "
    if facts.own_ratio > BUDGET_RATIO:
        return line(Span(f" ! {cost}more than it should; - refreshes less often ", Role.OPEN))
    return line(Span(f" {cost}{every} ", Role.MUTED))
