"""A case id taken apart: `kernel.linear[m=512,dtype=bf16]`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseName:
    """The parts of a case id."""

    benchmark: str
    """Name of the benchmark; the whole id where it does not come apart."""
    parameters: tuple[tuple[str, str], ...]
    """Names and values, in the order of the id."""


def split_case_id(case_id: str) -> CaseName:
    """The parts of a case id; an id whose brackets hold anything else than `key=value` stays whole."""
    benchmark, bracket, rest = case_id.partition("[")
    if not bracket or not rest.endswith("]"):
        return CaseName(benchmark=case_id, parameters=())
    pairs = [part.partition("=") for part in rest[:-1].split(",")]
    if not all(key and equals for key, equals, _ in pairs):
        return CaseName(benchmark=case_id, parameters=())
    return CaseName(benchmark=benchmark, parameters=tuple((key, value) for key, _, value in pairs))
