"""Selection of cases by id, benchmark name, glob or tag, and the cases of a suite.

Imports no torch.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perfguard.benchmarks.options import split_pattern, with_options
from perfguard.errors import NothingSelectedError, UsageError
from perfguard.records.spec import Case, Catalog, Gating, expand

TAG_PREFIX = "tag:"  # Marks a pattern that selects by tag: `tag:step`


def select(catalog: Catalog, patterns: Sequence[str]) -> tuple[Case, ...]:
    """The cases that the patterns name, in the order of the patterns, each once.

    A pattern is a case id, a benchmark's name (all its cases), `tag:` with a tag, or a glob with `*` and `?`
    over case ids and names. Brackets are literal: they belong to case ids. Options of the benchmark may follow the
    parameters in the brackets: `step.bert[*,optimizer=fused]`.

    Raises:
        NothingSelectedError: A pattern matches nothing; the message names the nearest known one.
        UsageError: A benchmark has no such option, or the option no such value.
    """
    cases = {case.id: case for spec in catalog.benchmarks for case in expand(spec)}
    selected: dict[str, Case] = {}
    for pattern in patterns:
        plain, options = split_pattern(pattern, catalog)
        for case in _selected(cases, plain):
            chosen = with_options(case, options, catalog.benchmarks)
            selected[chosen.id] = chosen
    return tuple(selected.values())


def select_from(cases: Sequence[Case], patterns: Sequence[str]) -> tuple[Case, ...]:
    """Those of the given cases that the patterns name; selects and raises as `select`."""
    known = {case.id: case for case in cases}
    return tuple(dict.fromkeys(case for pattern in patterns for case in _selected(known, pattern)))


def _selected(cases: Mapping[str, Case], pattern: str) -> list[Case]:
    """Those of the cases, by id, that a pattern names."""
    found = [case for case_id, case in cases.items() if _names(pattern, case_id, case.benchmark, case.tags)]
    if not found:
        raise NothingSelectedError(_nothing_matches(tuple(cases.values()), pattern))
    return found


def suite_cases(catalog: Catalog, name: str) -> tuple[Case, ...]:
    """The cases of a suite: the gating ones first, then the advisory ones that do not gate already.

    Raises:
        UsageError: No suite has this name; the message names the nearest one.
        NothingSelectedError: A pattern of the suite matches nothing.
    """
    suites = {suite.name: suite for suite in catalog.suites}
    if name not in suites:
        raise UsageError(f"no suite is named {name!r}{did_you_mean(name, suites)}; `perfguard list` shows all")
    try:
        gating, others = (select(catalog, patterns) for patterns in (suites[name].gating, suites[name].advisory))
    except NothingSelectedError as error:
        raise NothingSelectedError(f"the suite {name!r} asks for what is not there: {error}") from error
    gating_ids = {case.id for case in gating}
    return (
        *(replace(case, gating=Gating.GATING) for case in gating),
        *(replace(case, gating=Gating.ADVISORY) for case in others if case.id not in gating_ids),
    )


def in_no_suite(catalog: Catalog) -> tuple[str, ...]:
    """Names of the benchmarks that the project declares and no suite measures; not those of other tools' suites."""
    chosen = set()
    for suite in catalog.suites:
        with contextlib.suppress(NothingSelectedError, UsageError):  # said where that suite is measured
            chosen |= {case.benchmark for case in suite_cases(catalog, suite.name)}
    declared = (spec.name for spec in catalog.benchmarks if spec.target.partition(":")[0].endswith(".py"))
    return tuple(name for name in declared if name not in chosen)


def names_case(pattern: str, case_id: str, tags: Sequence[str] = ()) -> bool:
    """Whether a pattern as in `select` names a case of which only the id and the tags are known."""
    return _names(pattern, case_id, case_id.partition("[")[0], tags)


def _names(pattern: str, case_id: str, benchmark: str, tags: Sequence[str]) -> bool:
    if pattern.startswith(TAG_PREFIX):
        return pattern.removeprefix(TAG_PREFIX) in tags
    if "*" not in pattern and "?" not in pattern:
        return pattern in (case_id, benchmark)
    glob = _glob(pattern)
    return glob.match(case_id) is not None or glob.match(benchmark) is not None


@functools.lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    # In fnmatch "[[]" is a literal bracket, and a "]" without an open one is literal already.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def _nothing_matches(cases: Sequence[Case], pattern: str) -> str:
    if pattern.startswith(TAG_PREFIX):
        known = [TAG_PREFIX + tag for case in cases for tag in case.tags]
    elif "[" in pattern:
        known = [case.id for case in cases]
    else:
        known = [case.benchmark for case in cases]
    beginning = sorted({name for name in known if pattern and name.startswith(pattern)})
    hint = f"; {pattern + '*'!r} matches what begins so" if beginning else did_you_mean(pattern, known)
    return f"no case matches {pattern!r}{hint}; `perfguard list` shows all"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; the nearest is 'name'`, the end of a message on an unknown word; empty where none is near."""
    nearest = difflib.get_close_matches(word, dict.fromkeys(known), n=1)
    return f"; the nearest is {nearest[0]!r}" if nearest else ""
