"""Which setting to try next: greedy forward, then pairs, then removal. It asks for trials and is sent outcomes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.profile.advice.toggles import Answer
from perfguard.records.tuning import Purpose, Setting, Toggle, ToggleHint, Trial, TrialOutcome, TrialVerdict

Answers = Mapping[str, tuple[Answer, ...]]
"""Values that a finding names, by its code: each the name of a toggle and a value."""


class SearchResult(Struct, frozen=True, kw_only=True):
    """Where a search ended."""

    recipe: Setting  # What helped
    is_complete: bool  # Whether nothing is left to try
    final: TrialOutcome | None  # The recipe against the reference; None where there is none


Search = Generator[Trial, TrialOutcome | None, SearchResult]
"""Yields trials and takes their outcomes; None says that there is no time for this trial. Only the final trial of a
recipe follows then."""


class _OutOfTimeError(Exception):
    """There is no time for another trial."""


def by_promise(
    toggles: Sequence[Toggle], hints: Sequence[ToggleHint], answers: Answers, gains: Mapping[Answer, float]
) -> tuple[Toggle, ...]:
    """Toggles that a finding names first, in the order of the findings; then by what a value saved elsewhere.

    Values of a toggle are in the same order. Findings come as `advise` sorts them: the worst first, then the largest
    part of the step. `gains` are parts of a step that were saved; what was never measured comes after what saved.
    """
    named = list(dict.fromkeys(answer for hint in hints for answer in answers.get(hint.code, ())))

    def rank_of_value(name: str, value: str) -> tuple[int, float]:
        answer = (name, value)
        return named.index(answer) if answer in named else len(named), -gains.get(answer, 0.0)

    def rank_of(toggle: Toggle) -> tuple[int, float]:
        return min(rank_of_value(toggle.name, value) for value in toggle.values)

    ranked = (
        replace(toggle, values=tuple(sorted(toggle.values, key=partial(rank_of_value, toggle.name))))
        for toggle in sorted(toggles, key=rank_of)
    )
    return tuple(ranked)


def search(toggles: Sequence[Toggle]) -> Search:
    """Look for the values that together make the step fastest.

    Forward: each value is tried on top of the recipe so far and joins it where it is a gain. Values of one toggle
    compete: a later one replaces an earlier one only where it is faster than that. Toggles that were no gain are tried
    again on a recipe that has grown since. Then pairs of them are tried, for gains that only exist together. At last
    each value must be a gain in the recipe as it is, or it is removed. A value that cannot be measured, that is ignored
    or that computes something else is not tried alone again.

    The final trial compares the recipe with the reference. Its outcome decides nothing, so it is not biased by the
    choice, as the gains of chosen values are.
    """
    state, is_complete = _State(), True
    try:
        yield from _add(state, toggles)
        yield from _add_pairs(state, toggles)
        yield from _keep(state, toggles)
    except _OutOfTimeError:
        is_complete = False
    final = (yield Trial(purpose=Purpose.FINAL, before=(), after=state.recipe)) if state.recipe else None
    return SearchResult(recipe=state.recipe, is_complete=is_complete, final=final)


def with_values(setting: Setting, *values: tuple[str, str]) -> Setting:
    """A setting with other values of some toggles."""
    return tuple(sorted({**dict(setting), **dict(values)}.items()))


def without_toggle(setting: Setting, name: str) -> Setting:
    """A setting in which a toggle has the reference's value."""
    return tuple(pair for pair in setting if pair[0] != name)


class _State(Struct):
    recipe: Setting = ()
    known: dict[tuple[Setting, Setting], TrialOutcome] = field(default_factory=dict)
    alone: dict[tuple[str, str], TrialOutcome] = field(default_factory=dict)  # Latest outcome of a value on a recipe

    def is_open(self, name: str) -> bool:
        return name not in dict(self.recipe)

    def best_of(self, toggle: Toggle) -> tuple[str, str] | None:
        """The value of a toggle that came nearest to a gain; None where none can be measured.

        One with different results is taken only where there is no other: beside another toggle they may agree.
        """
        tried = [
            (value, self.alone[toggle.name, value]) for value in toggle.values if (toggle.name, value) in self.alone
        ]
        usable = [
            (value, outcome)
            for value, outcome in tried
            if outcome.log_ratio is not None and outcome.verdict is not TrialVerdict.FAILED
        ]
        if not usable:
            return None
        value, _ = min(usable, key=lambda each: (each[1].verdict is TrialVerdict.DIFFERENT, each[1].log_ratio))
        return toggle.name, value


def _compare(state: _State, trial: Trial) -> Generator[Trial, TrialOutcome | None, TrialOutcome]:
    """The outcome of a comparison, measured once in a search whatever it is asked for."""
    place = (trial.before, trial.after)
    if place not in state.known:
        outcome = yield trial
        if outcome is None:
            raise _OutOfTimeError
        state.known[place] = outcome
    return state.known[place]


def _add(state: _State, toggles: Iterable[Toggle]) -> Generator[Trial, TrialOutcome | None, None]:
    left = list(toggles)
    while left:
        before = state.recipe
        for toggle in left:
            yield from _add_best_value(state, toggle)
        left = [toggle for toggle in left if state.is_open(toggle.name)] if state.recipe != before else []


def _add_best_value(state: _State, toggle: Toggle) -> Generator[Trial, TrialOutcome | None, None]:
    for value in toggle.values:
        alone = state.alone.get((toggle.name, value))
        if alone is not None and alone.verdict in (TrialVerdict.FAILED, TrialVerdict.DIFFERENT, TrialVerdict.IGNORED):
            continue
        after = with_values(state.recipe, (toggle.name, value))
        outcome = yield from _compare(state, Trial(purpose=Purpose.ADD, before=state.recipe, after=after))
        state.alone[toggle.name, value] = outcome
        if outcome.verdict is TrialVerdict.FASTER:
            state.recipe = after


def _add_pairs(state: _State, toggles: Iterable[Toggle]) -> Generator[Trial, TrialOutcome | None, None]:
    for first, second in combinations(toggles, 2):
        values = state.best_of(first), state.best_of(second)
        if not (state.is_open(first.name) and state.is_open(second.name)) or None in values:
            continue
        after = with_values(state.recipe, *(value for value in values if value is not None))
        outcome = yield from _compare(state, Trial(purpose=Purpose.PAIR, before=state.recipe, after=after))
        if outcome.verdict is TrialVerdict.FASTER:
            state.recipe = after


def _keep(state: _State, toggles: Sequence[Toggle]) -> Generator[Trial, TrialOutcome | None, None]:
    """Remove what is no gain in the recipe as it is, the least promising first; without it is before, with it after.

    Where the recipe without a value computes something else, or fails, the value stays; so does one whose trial had no
    time for an answer, since it was a gain before.
    """
    for toggle in reversed(toggles):
        if state.is_open(toggle.name):
            continue
        without = without_toggle(state.recipe, toggle.name)
        outcome = yield from _compare(state, Trial(purpose=Purpose.KEEP, before=without, after=state.recipe))
        if outcome.is_no_gain:
            state.recipe = without
