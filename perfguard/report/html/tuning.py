"""A tuning as one page that works offline: what to copy, every trial with its interval, and what was refused."""

from __future__ import annotations

import math

from perfguard.records.tuning import Purpose, TrialOutcome, TrialVerdict, TriedTrial, Tuning
from perfguard.report.html.charts import Cell, Chart, RatioAxis, Table, cells, mark_cell
from perfguard.report.html.effect_bars import Ends, common_axis, effect_bar, effect_ticks, scale_text
from perfguard.report.html.page import Opening, Section, render_sections
from perfguard.report.shown import Mark, Number
from perfguard.report.terminal.tuning import (
    conclusion_of,
    ended_recipe,
    inapplicable_of,
    interval_text,
    refusals_of,
    result_text,
    setting_text,
    settings_to_copy,
    trial_name,
)
from perfguard.units import format_count, format_duration, format_effect

_CLASSES = {
    TrialVerdict.FASTER: "faster",
    TrialVerdict.SLOWER: "slower",
    TrialVerdict.DIFFERENT: "broken",
    TrialVerdict.FAILED: "broken",
}


def render_tuning_page(found: Tuning) -> str:
    """The whole page; the same tuning gives the same bytes."""
    opening = Opening(
        heading=f"perfguard tune: {found.outcome.value}",
        intro=f"{'Script' if found.is_script else 'Case'} {found.target}, measured on {found.machine_id}: "
        f"{format_count(len(found.trials), 'trial')} in {format_duration(found.measured_s)}.",
        conclusion=conclusion_of(found),
        note="A trial compares two settings in paired blocks of fresh processes. A gain joins the settings that later "
        "trials build on; at the end each must still be a gain beside the others. Nothing is chosen by the last trial.",
    )
    sections = [Section(anchor="trials", title="Trials", charts=_trials(found), tables=_left_out(found))]
    if to_copy := settings_to_copy(found):
        sections.insert(0, Section(anchor="settings", title="What to copy", first=_pairs(to_copy, "", "setting")))
    return render_sections(f"perfguard: tuned {found.target}", "tune", opening, sections)


def _pairs(rows: list[tuple[str, str]], *columns: str) -> Table:
    return Table(columns=columns, rows=tuple(cells(label, text) for label, text in rows))


def _trials(found: Tuning) -> tuple[Chart, ...]:
    if not found.trials:
        return ()
    axis = common_axis(ends for tried in found.trials if (ends := _ends(tried.outcome)))
    ticks = Cell(content=effect_ticks(axis), class_="axis")
    rows = (*(_row(found, tried, axis) for tried in found.trials), cells("", "", ticks, "", "", ""))
    columns = ("trial", "on top of", "with it against without it", ">effect", ">blocks", "result")
    return (
        Chart(
            kind="tune-trials",
            title="What helps, and how sure is it?",
            figure=Table(columns=columns, rows=rows, caption="Trials in their order", class_="forest trials"),
            legend=(("key-interval", "effect and 95 % interval"),),
            note=f"Left is faster{scale_text(axis)}.",
        ),
    )


def _row(found: Tuning, tried: TriedTrial, axis: RatioAxis) -> tuple[Cell, ...]:
    outcome, result = tried.outcome, result_text(tried, ended_recipe(found))
    class_, name = _CLASSES.get(outcome.verdict, "open"), trial_name(tried)
    label = f"{name}: {format_effect(outcome.log_ratio)} {interval_text(outcome)}, {result}"
    is_last = tried.trial.purpose is Purpose.FINAL
    return cells(
        Cell(content=f"{name}: {setting_text(found.recipe)}" if is_last else name, class_="name"),
        Cell(content=setting_text(tried.trial.before), class_="name"),
        Cell(content=effect_bar(label, _ends(outcome), axis, class_), class_="picture"),
        Number.of(format_effect, outcome.log_ratio),
        Number.whole(outcome.blocks),
        mark_cell(Mark("", result, class_), result),
    )


def _ends(outcome: TrialOutcome) -> Ends | None:
    if outcome.log_ratio is None:
        return None
    lower, upper = (math.nan if end is None else end for end in (outcome.lower, outcome.upper))
    return outcome.log_ratio, lower, upper


def _left_out(found: Tuning) -> tuple[Table, ...]:
    """What was refused, and what was not tried."""
    refused, absent = refusals_of(found), inapplicable_of(found)
    tables = [Table(columns=("refused", "", "why"), rows=tuple(cells(*row) for row in refused))] if refused else []
    return (*tables, *([_pairs(absent, "not tried", "why")] if absent else []))
