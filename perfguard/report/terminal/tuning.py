"""A tuning as people read it: every trial, what does not apply, then what to copy."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from perfguard.records.tuning import (
    Purpose,
    Setting,
    TrialOutcome,
    TrialVerdict,
    TriedTrial,
    Tuning,
    TuningOutcome,
    verdict_of,
)
from perfguard.report.escaping import code, escape
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_count, format_duration, format_effect, format_seconds, format_share, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_WORDS = {
    TrialVerdict.FASTER: "faster",
    TrialVerdict.SLOWER: "slower",
    TrialVerdict.OPEN: "no gain shown",
    TrialVerdict.DIFFERENT: "different results",
    TrialVerdict.IGNORED: "does not apply",
    TrialVerdict.FAILED: "failed",
}
_EXPLAINED = {TrialVerdict.DIFFERENT: "refused", TrialVerdict.IGNORED: "ignored", TrialVerdict.FAILED: "failed"}
"""What needs a reason, and what it is called there."""

_CODE = {
    ("dtype", "bf16"): 'with torch.autocast("cpu", torch.bfloat16):  # around forward and loss, not around backward',
    ("memory_format", "channels_last"): (
        "model = model.to(memory_format=torch.channels_last); images = images.to(memory_format=torch.channels_last)"
    ),
    ("optimizer", "for-loop"): "foreach=False, fused=False  # arguments of the optimizer",
    ("optimizer", "foreach"): "foreach=True  # argument of the optimizer",
    ("optimizer", "fused"): "fused=True  # argument of the optimizer",
}
"""What keeps a setting in a script."""

_COLUMNS = ("trial", "on top of", "effect", "95 % interval", "blocks", "result")


def render_tuning(found: Tuning) -> list[RenderableType]:
    """What to print, in order."""
    style = "bold" if found.outcome is TuningOutcome.DONE else "bold yellow"
    table = plain_table("~trial", "~on top of/2", ">effect", "95 % interval", ">blocks/1", "result", rows=_rows(found))
    return [
        *texts(*_head(found), style="dim"),
        *([table] if found.trials else []),
        *texts(*_refusals(found), *_unchecked(found), style="yellow"),
        *texts(*(f"not tried  {name}: {why}" for name, why in inapplicable_of(found)), style="dim"),
        *texts(f"{found.outcome.value}: {conclusion_of(found)}", style=style),
        *texts(*(f"    {label:<10} {text}" for label, text in settings_to_copy(found))),
    ]


def render_tuning_markdown(found: Tuning) -> str:
    """The same for a comment or a job summary, the conclusion first."""
    lines = [f"## perfguard tune: {found.outcome.value}", "", escape(conclusion_of(found)), ""]
    lines += [f"- {label}: {code(text)}" for label, text in settings_to_copy(found)]
    if found.trials:
        lines += ["", f"| {' | '.join(_COLUMNS)} |", "|---|---|--:|---|--:|---|"]
        lines += [f"| {' | '.join(escape(cell) for cell in row)} |" for row in _rows(found)]
    lines += ["", *(f"- {escape(line)}" for line in (*_refusals(found), *_unchecked(found)))]
    lines += [f"- not tried: {code(name)}, {escape(why)}" for name, why in inapplicable_of(found)]
    lines += [f"- {escape(line)}" for line in _head(found)]
    return "\n".join(lines)


def trial_line(tried: TriedTrial) -> str:
    """`optimizer=fused on top of dtype=bf16: faster, -4.6 % [-5.0 %, -4.2 %] in 5 blocks`."""
    outcome = tried.outcome
    found = _verdict_text(outcome)
    if outcome.log_ratio is not None:
        found += f", {format_effect(outcome.log_ratio)} {interval_text(outcome)}"
    how = "known" if tried.is_reused else format_duration(outcome.duration_s)
    return printable(
        f"{trial_name(tried)} on top of {_base(tried)}: {found} ({format_count(outcome.blocks, 'block')}, {how})"
    )


def setting_text(setting: Setting) -> str:
    """`dtype=bf16, optimizer=fused`; `the reference` for the empty one."""
    return ", ".join(f"{name}={value}" for name, value in setting) or "the reference"


def _head(found: Tuning) -> list[str]:
    measured = sum(not tried.is_reused for tried in found.trials)
    spent = f"{format_duration(found.duration_s)} of {format_duration(found.budget_s)}"
    return [
        f"{'script' if found.is_script else 'case':<10} {found.target}",
        f"trials     {format_count(len(found.trials), 'trial')}, {measured} measured now, in {spent}",
        f"findings   {', '.join(hint_text(hint.code, hint.share) for hint in found.hints) or 'none'}",
        f"kept in    {found.journal}",
        f"page       {found.page}",
    ]


def hint_text(finding: str, share: float | None) -> str:
    """`unfused-optimizer (12 % of the step)`."""
    name = finding.removeprefix("advice.").replace("_", "-")
    return name if share is None else f"{name} ({format_share(share)} of the step)"


def _rows(found: Tuning) -> list[tuple[str, ...]]:
    return [
        (
            trial_name(tried),
            _base(tried),
            format_effect(tried.outcome.log_ratio),
            interval_text(tried.outcome),
            str(tried.outcome.blocks),
            result_text(tried, ended_recipe(found)),
        )
        for tried in found.trials
    ]


def trial_name(tried: TriedTrial) -> str:
    """What differs between the two settings."""
    if tried.trial.purpose is Purpose.FINAL:
        return "all of them"
    before = dict(tried.trial.before)
    return setting_text(tuple(pair for pair in tried.trial.after if before.get(pair[0]) != pair[1]))


def _base(tried: TriedTrial) -> str:
    return setting_text(tried.trial.before)


def interval_text(outcome: TrialOutcome) -> str:
    """`[-5.0 %, -4.2 %]`; empty where there is none."""
    if outcome.lower is None or outcome.upper is None:
        return ""
    return f"[{format_effect(outcome.lower)}, {format_effect(outcome.upper)}]"


def ended_recipe(found: Tuning) -> Setting | None:
    """The recipe; None where the search was interrupted before it had one."""
    return None if found.outcome is TuningOutcome.INTERRUPTED and not found.recipe else found.recipe


def result_text(tried: TriedTrial, recipe: Setting | None) -> str:
    """What was shown, and what became of it in the recipe, where there is one."""
    verdict, trial, text = tried.outcome.verdict, tried.trial, _verdict_text(tried.outcome)
    if recipe is None:
        return text
    if trial.purpose is Purpose.FINAL or verdict is not TrialVerdict.FASTER:
        if trial.purpose is Purpose.KEEP and verdict is TrialVerdict.OPEN and not tried.outcome.is_answered:
            return "not confirmed, kept"
        is_removed = trial.purpose is Purpose.KEEP and tried.outcome.is_no_gain
        return f"{text}, removed" if is_removed else text
    is_kept = set(trial.after) - set(trial.before) <= set(recipe)
    return f"{text}, {'kept' if is_kept else 'later dropped'}"


def _verdict_text(outcome: TrialOutcome) -> str:
    """An open trial is not one without a gain where the host was disturbed, its time was short, or it has an effect."""
    if outcome.verdict is TrialVerdict.OPEN and not outcome.is_kept:
        return "open, the host was disturbed"
    has_effect = verdict_of(outcome.lower, outcome.upper) is not TrialVerdict.OPEN
    if outcome.verdict is TrialVerdict.OPEN and (outcome.is_cut_short or has_effect):
        return "undecided"
    return _WORDS[outcome.verdict]


def refusals_of(found: Tuning) -> list[tuple[str, str, str]]:
    """Trials that need a reason: what it is called, which, why."""
    return [
        (_EXPLAINED[tried.outcome.verdict], trial_name(tried), describe_all(tried.outcome.reasons))
        for tried in found.trials
        if tried.outcome.verdict in _EXPLAINED
    ]


def _refusals(found: Tuning) -> list[str]:
    return [f"{word:<10} {name}: {why}" for word, name, why in refusals_of(found)]


def _unchecked(found: Tuning) -> list[str]:
    """That results were not compared, once."""
    reasons = (reason for tried in found.trials for reason in tried.outcome.reasons)
    unchecked = next((reason for reason in reasons if reason.code == "script.unchecked"), None)
    return [f"{'unchecked':<10} {describe(unchecked)}"] if unchecked is not None else []


def inapplicable_of(found: Tuning) -> list[tuple[str, str]]:
    """Toggles that are not tried, and why."""
    return [(each.name, describe(each.reason)) for each in found.inapplicable]


def conclusion_of(found: Tuning) -> str:
    """What helped, and by how much; or how it ended."""
    if found.outcome in _ENDINGS:
        return _ENDINGS[found.outcome]
    helped = setting_text(found.recipe) if found.recipe else "nothing"
    if found.outcome is TuningOutcome.REFUSED:
        return f"{helped} together compute something else than the reference; --toggles leaves some of them out"
    later = "" if found.outcome is TuningOutcome.DONE else f"; {_unfinished(found)}"
    if not found.recipe and not found.trials and found.inapplicable:
        return "nothing could be tried: no toggle is a parameter of this case; add such parameters, or tune a script"
    if not found.recipe:
        return f"nothing helped{later}"
    return f"{helped}{_final(found.final)}{later}"


_ENDINGS = {
    TuningOutcome.INTERRUPTED: "finished trials are kept; the same command continues",
    TuningOutcome.FAILED: "not one trial could be measured; the trials say why",
}


def _final(final: TrialOutcome | None) -> str:
    """What the recipe gained over the reference."""
    if final is None or final.log_ratio is None:
        return " helped, and the final comparison with the reference was not measured"
    gain = f"{format_effect(final.log_ratio)} {interval_text(final)} against the reference in fresh processes"
    if final.verdict is not TrialVerdict.FASTER:
        return f" helped in trials, but no gain is shown together: {gain}"
    times = f" ({format_seconds(final.before_s)} → {format_seconds(final.after_s)})" if final.before_s else ""
    return f": {gain}{times}"


def _unfinished(found: Tuning) -> str:
    """Why there may be more to gain."""
    left_open = [tried.outcome for tried in found.trials if not tried.outcome.is_answered]
    disturbed = sum(not outcome.is_kept for outcome in left_open)
    if disturbed:
        return f"the host was too unstable in {format_count(disturbed, 'trial')}: the same command measures them again"
    if left_open:
        trials = format_count(len(left_open), "trial")
        return f"the budget was too small for an answer in {trials}: twice as much measures them again"
    return "the budget ended before everything was tried, the same command continues"


def settings_to_copy(found: Tuning) -> list[tuple[str, str]]:
    """What to copy, by labels."""
    if not found.recipe or found.outcome is TuningOutcome.REFUSED:
        return []
    references = {toggle.name: toggle.reference for toggle in found.toggles}
    changes = [(f"{name}", f"{references.get(name, '')} → {value}") for name, value in found.recipe]
    runs = [tried.outcome.run_id for tried in found.trials if tried.outcome.run_id is not None]
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in found.environment)
    environment = [("variables", variables)] if variables else []
    if found.is_script:
        lines = [("code", _CODE[change]) for change in found.recipe if change in _CODE]
        return [*changes, *lines, *environment, ("arm", found.candidate), ("compare", found.command)]
    return [
        *changes,
        *environment,
        ("arm", found.candidate),
        ("case", found.tuned),
        ("compare", found.command),
        ("trials", shlex.join(("perfguard", "report", *runs, "-o", "trials.html"))),
    ]
