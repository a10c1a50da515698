"""Parameters of a case beside those of its id: options that a pattern names, and parameters that an arm sets.

Imports no torch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perfguard.errors import UsageError
from perfguard.records.spec import ANY_COUNT, BenchmarkSpec, Case, Catalog, ParameterValue, format_parameter

Chosen = Mapping[str, str]  # Values by parameter, as they were typed


def split_pattern(pattern: str, catalog: Catalog) -> tuple[str, Chosen]:
    """A pattern without the options at its end, and these: `step.bert[…,optimizer=fused]` is `step.bert[…]` and one."""
    names = "|".join(sorted({re.escape(name) for spec in catalog.benchmarks for name, _ in spec.options}))
    found = re.fullmatch(rf"(.*?)((?:,(?:{names})=[^,\[\]]+)+)\]", pattern) if names else None
    if found is None:
        return pattern, {}
    return found.group(1) + "]", dict(part.split("=", 1) for part in found.group(2)[1:].split(","))


def values_of(case: Case, specs: Iterable[BenchmarkSpec]) -> Mapping[str, tuple[str, ...]]:
    """Values by name of the case's parameters and options; empty where none of these benchmarks is the case's."""
    return {
        name: tuple(map(format_parameter, values))
        for spec in specs
        if spec.name == case.benchmark
        for name, values in (*spec.parameters, *spec.options)
    }


def with_options(case: Case, chosen: Chosen, specs: Sequence[BenchmarkSpec]) -> Case:
    """The case with options; one that has its default value does not stand in the id.

    Raises:
        UsageError: Its benchmark has no such option, or the option no such value.
    """
    options = {name: values for spec in specs if spec.name == case.benchmark for name, values in spec.options}
    values: dict[str, ParameterValue] = {}
    for name, text in chosen.items():
        if name not in options:
            raise UsageError(f"{case.benchmark} has no option {name!r}; {_choice(options)}")
        values[name] = _value(name, text, options[name])
    # In the order of the benchmark, so that one case has one id.
    further = [(name, values[name]) for name, known in options.items() if values.get(name, known[0]) != known[0]]
    return replace(case, parameters=(*case.parameters, *further))


def with_values(case: Case, chosen: Chosen, specs: Sequence[BenchmarkSpec]) -> Case:
    """The case with other values of its parameters and options, as its id names them.

    Raises:
        UsageError: Its benchmark has no such parameter, or the parameter no such value.
    """
    known = {name: values for spec in specs if spec.name == case.benchmark for name, values in spec.parameters}
    parameters = {name: value for name, value in case.parameters if name in known}
    parameters |= {name: _value(name, text, known[name]) for name, text in chosen.items() if name in known}
    options = {name: format_parameter(value) for name, value in case.parameters if name not in known}
    options |= {name: text for name, text in chosen.items() if name not in known}
    return with_options(replace(case, parameters=tuple(parameters.items())), options, specs)


def require_parameters(chosen: Chosen, cases: Iterable[Case], specs: Sequence[BenchmarkSpec]) -> tuple[str, ...]:
    """Check the parameters that an arm sets for all cases; gives the ids of the cases that have none of them.

    A case without a spec, as one of a user's benchmark, may have any value.

    Raises:
        UsageError: No case has such a parameter, or the parameter no such value.
    """
    known: dict[str, dict[ParameterValue, None]] = {}
    untouched: list[str] = []
    of_any_value: set[str] = set()
    for case in cases:
        of_case = [pair for spec in specs if spec.name == case.benchmark for pair in (*spec.parameters, *spec.options)]
        if not of_case:
            of_case = [(name, ()) for name, _ in case.parameters]
            of_any_value.update(name for name, _ in of_case)
        for name, values in of_case:
            known.setdefault(name, {}).update(dict.fromkeys(values))
        if not chosen.keys() & {name for name, _ in of_case}:
            untouched.append(case.id)
    for name, text in chosen.items():
        if name not in known:
            raise UsageError(f"no selected case has a parameter {name!r}{_nearest(name, known)}; {_choice(known)}")
        if name not in of_any_value:
            _value(name, text, tuple(known[name]))
    return tuple(untouched)


def require_settings(chosen: Chosen, known: Mapping[str, Sequence[ParameterValue]]) -> None:
    """Check the settings of an arm that runs a script.

    Raises:
        UsageError: There is no such setting, or it has no such value.
    """
    for name, text in chosen.items():
        if name not in known:
            raise UsageError(f"a script has no setting {name!r}{_nearest(name, known)}; {_choice(known)}")
        _value(name, text, known[name])


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; the nearest is {near[0]!r}" if near else ""


def _value(name: str, text: str, known: Sequence[ParameterValue]) -> ParameterValue:
    for value in known:
        if format_parameter(value) == text and value != ANY_COUNT:
            return value
    if ANY_COUNT in known and re.fullmatch("[1-9][0-9]{0,4}", text):
        return int(text)
    values = ", ".join(map(format_parameter, known))
    raise UsageError(f"{name}={text} is unknown; choose from {values}")


def _choice(names: Iterable[str]) -> str:
    known = ", ".join(names)
    return f"choose from {known}" if known else "it has none"
