"""Ids of cases taken apart, and their short names: `step.bert` instead of `step.bert[batch=2,dtype=bf16]`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

_ID = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")
_PARAMETERS = re.compile(r"[A-Za-z_]\w*=[^,=]*(?:,[A-Za-z_]\w*=[^,=]*)*")


def short_names(case_ids: Iterable[str]) -> Mapping[str, str]:
    """The shortest names that still tell these cases apart, by id.

    Parameters that have the same value in all cases of a benchmark are left out. Ids that are not of the form
    `benchmark[name=value,...]` stay as they are.
    """
    return _names(tuple(dict.fromkeys(case_ids)))


@lru_cache(maxsize=64)
def _names(case_ids: tuple[str, ...]) -> Mapping[str, str]:
    by_benchmark: dict[str, dict[str, dict[str, str]]] = {}
    for case_id in case_ids:
        found = _ID.fullmatch(case_id)
        if found and _PARAMETERS.fullmatch(found.group(2)):
            pairs = (pair.partition("=") for pair in found.group(2).split(","))
            parameters = {name: value for name, _, value in pairs}
            by_benchmark.setdefault(found.group(1), {})[case_id] = parameters
    names = {case_id: case_id for case_id in case_ids}
    for benchmark, cases in by_benchmark.items():
        names |= {case_id: _name(benchmark, own, list(cases.values())) for case_id, own in cases.items()}
    known = Counter(names.values())
    return {case_id: name if known[name] == 1 else case_id for case_id, name in names.items()}


def _name(benchmark: str, own: Mapping[str, str], alike: list[dict[str, str]]) -> str:
    telling = [f"{name}={value}" for name, value in own.items() if any(other.get(name) != value for other in alike)]
    return f"{benchmark}[{','.join(telling)}]" if telling else benchmark


class CaseName(Struct, frozen=True, kw_only=True):
    """The parts of a case id."""

    benchmark: str  # Name of the benchmark; the whole id where it does not come apart
    parameters: tuple[tuple[str, str], ...]  # Names and values, in the order of the id


def split_case_id(case_id: str) -> CaseName:
    """The parts of a case id; an id whose brackets hold anything else than `key=value` stays whole."""
    benchmark, bracket, rest = case_id.partition("[")
    if not bracket or not rest.endswith("]"):
        return CaseName(benchmark=case_id, parameters=())
    pairs = [part.partition("=") for part in rest[:-1].split(",")]
    if not all(key and equals for key, equals, _ in pairs):
        return CaseName(benchmark=case_id, parameters=())
    return CaseName(benchmark=benchmark, parameters=tuple((key, value) for key, _, value in pairs))
