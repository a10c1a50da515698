"""The toggles of a case or script: its parameters or settings, allocator and threads; and why others are none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from perfguard.errors import UsageError
from perfguard.host.allocators import ALLOCATORS
from perfguard.records.facts import fact
from perfguard.records.ranks import RANK_OPTIONS, ranks_of_case
from perfguard.records.script_settings import SCRIPT_SETTINGS
from perfguard.records.spec import BenchmarkSpec, Case, format_parameter
from perfguard.records.tuning import Inapplicable, Setting, Toggle

_AXES = ("dtype", "memory_format", "mode")  # Parameters of case ids that say how a step runs, not what it computes
ALLOCATOR, THREADS = "allocator", "threads"
_PROCESS = (ALLOCATOR, THREADS)  # Toggles of the whole process, by its variables
_DEFAULT, _AS_WRITTEN = "default", "as written"  # Values of the reference that have no other name
_NOTHING: Mapping[str, str] = MappingProxyType({})


class KnownToggles(Struct, frozen=True, kw_only=True):
    """What can be set for a case or a script."""

    toggles: tuple[Toggle, ...]  # In the order of the catalogue, those of the process last
    inapplicable: tuple[Inapplicable, ...]
    libraries: Mapping[str, Path]  # Of allocators, by name

    def variables(self, setting: Setting) -> dict[str, str]:
        """The environment of a setting."""
        chosen, found = dict(setting), {}
        if ALLOCATOR in chosen:
            found["LD_PRELOAD"] = str(self.libraries[chosen[ALLOCATOR]])
        if THREADS in chosen:
            found |= {"OMP_NUM_THREADS": chosen[THREADS], "MKL_NUM_THREADS": chosen[THREADS]}
        return found

    def parameters(self, setting: Setting) -> dict[str, str]:
        """The parameters of a setting."""
        return {name: value for name, value in setting if name not in _PROCESS}


def toggles_of(
    case: Case,
    benchmarks: Sequence[BenchmarkSpec],
    *,
    libraries: Mapping[str, Path],
    threads: int,
    arm_parameters: Mapping[str, str] = _NOTHING,
) -> KnownToggles:
    """The toggles of a case that runs on so many threads, with the allocators that are installed.

    The reference has the case's parameters, and those that its arm sets in their place.
    """
    spec = next(each for each in benchmarks if each.name == case.benchmark)
    own = {name: values for name, values in (*spec.parameters, *spec.options) if _is_toggle(name, spec)}
    toggles, inapplicable = [], []
    for name, values in own.items():
        reference = arm_parameters.get(name, format_parameter(dict(case.parameters).get(name, values[0])))
        others = [value for value in values if format_parameter(value) != reference]
        kept = tuple(format_parameter(value) for value in others if (name, value) not in spec.faults)
        if kept:
            toggles.append(Toggle(name=name, reference=reference, values=kept))
        else:
            reason = fact("tune.only_faults", value=reference) if others else fact("tune.one_value", value=reference)
            inapplicable.append(Inapplicable(name=name, reason=reason))
    elsewhere = dict.fromkeys(name for each in benchmarks for name, _ in each.options if name not in RANK_OPTIONS)
    for name in (*_AXES, *elsewhere):
        if name not in own and "step" in spec.tags:
            missing = fact("tune.no_parameter", benchmark=case.benchmark)
            inapplicable.append(Inapplicable(name=name, reason=missing))
    has_ranks = ranks_of_case(case.target, dict(case.parameters)) is not None
    return _with_process(toggles, inapplicable, libraries, None if has_ranks else threads)


def toggles_of_script(
    *, libraries: Mapping[str, Path], threads: int, arm_parameters: Mapping[str, str] = _NOTHING
) -> KnownToggles:
    """The toggles of a script: settings that can be made from outside, beside those of the process.

    The first value of a setting is what torch does on CPUs where a script chooses nothing, so it is tried only where
    the reference's arm sets another.
    """
    toggles = [
        Toggle(
            name=name,
            reference=arm_parameters.get(name, _AS_WRITTEN),
            values=tuple(value for value in values if value != arm_parameters.get(name, values[0])),
        )
        for name, values in SCRIPT_SETTINGS.items()
    ]
    return _with_process(toggles, [], libraries, threads)


def _with_process(
    toggles: list[Toggle], inapplicable: list[Inapplicable], libraries: Mapping[str, Path], threads: int | None
) -> KnownToggles:
    """These and the toggles of the whole process; None is for ranks, which choose their threads themselves."""
    if libraries:
        toggles.append(Toggle(name=ALLOCATOR, reference=_DEFAULT, values=tuple(libraries)))
    else:
        inapplicable.append(Inapplicable(name=ALLOCATOR, reason=fact("tune.no_allocator", names=ALLOCATORS)))
    if threads is None:
        inapplicable.append(Inapplicable(name=THREADS, reason=fact("tune.of_ranks")))
    elif threads > 1:
        fewer = tuple(dict.fromkeys(map(str, (threads // 2, 1))))
        toggles.append(Toggle(name=THREADS, reference=str(threads), values=fewer))
    else:
        inapplicable.append(Inapplicable(name=THREADS, reason=fact("tune.one_cpu")))
    return KnownToggles(toggles=tuple(toggles), inapplicable=tuple(inapplicable), libraries=libraries)


def _is_toggle(name: str, spec: BenchmarkSpec) -> bool:
    """Whether it says how a step runs; ranks are another amount of work."""
    return name in _AXES or (name in dict(spec.options) and name not in RANK_OPTIONS)


def chosen_toggles(
    toggles: Sequence[Toggle], inapplicable: Sequence[Inapplicable], names: Iterable[str]
) -> tuple[tuple[Toggle, ...], tuple[Inapplicable, ...]]:
    """Those that are named, in their order; all without names.

    Raises:
        UsageError: There is no toggle of a name.
    """
    wanted = tuple(names)
    known = [*(toggle.name for toggle in toggles), *(each.name for each in inapplicable)]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"the nearest is {near[0]!r}" if near else f"choose from {', '.join(known)}"
            raise UsageError(f"--toggles: there is no toggle {name!r}; {hint}")
    return (
        tuple(toggle for toggle in toggles if not wanted or toggle.name in wanted),
        tuple(each for each in inapplicable if not wanted or each.name in wanted),
    )
