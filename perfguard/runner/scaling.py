"""Cases of a scaling table: a training step at several numbers of ranks and of threads in each."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.benchmarks.options import with_options
from perfguard.config import LoadedConfig
from perfguard.errors import NothingSelectedError, UsageError
from perfguard.host.placement import sockets_of
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.ranks import RANK_OPTIONS, Parallel, Ranks, Sockets, has_ranks, ranks_of_case
from perfguard.records.spec import Case
from perfguard.runner.session import Request, choose_cpus


def require_room(cases: Iterable[Case], of_arm: Mapping[str, str], sockets: Sockets) -> None:
    """Check that each case finds CPUs for its ranks, with the parameters that an arm sets.

    Raises:
        UsageError: The ranks of a case do not fit.
    """
    for case in cases:
        spread = ranks_of_case(case.target, {**dict(case.parameters), **of_arm})
        if spread is not None:
            try:
                spread.cpus(sockets)
            except UsageError as error:
                raise UsageError(f"{case.id}: {error}") from error


class Axes(Struct, frozen=True, kw_only=True):
    """What a scaling table is asked for."""

    ranks: tuple[int, ...]
    threads: tuple[int, ...] = ()  # Of each rank; empty shares the CPUs among the most ranks


def spread_request(request: Request, axes: Axes) -> Request:
    """The request for every cell of a scaling table that fits on the machine, on as many CPUs as the largest needs.

    Raises:
        NothingSelectedError: No case is a built-in training step.
        UsageError: A number of ranks or of threads fits in no cell.
    """
    steps = tuple(case for case in request.cases if has_ranks(case.target))
    if not steps:
        raise NothingSelectedError(
            "--ranks: no selected case is a built-in training step; choose some: -c 'step.bert*'"
        )
    config = request.loaded.config
    threads = axes.threads
    if not threads:
        most = max(axes.ranks)
        threads = (max(1, len(choose_cpus(request.loaded, request.fingerprint).cpus) // most),)
    room = {
        (of_rank, ranks): _obstacle(Ranks(ranks=ranks, threads=of_rank), request.loaded, request.fingerprint)
        for of_rank, ranks in itertools.product(threads, axes.ranks)
    }
    cells = [cell for cell, obstacle in room.items() if obstacle is None]
    for place, counts in enumerate((threads, axes.ranks)):
        for count in counts:
            if all(cell[place] != count for cell in cells):
                raise next(error for cell, error in room.items() if cell[place] == count and error is not None)
    cases = tuple(case for step in steps for cell in cells for case in _cases(step, *cell))
    cpus = None if config.cpus is not None else max(of_rank * ranks for of_rank, ranks in cells)
    loaded = replace(request.loaded, config=replace(config, threads=cpus))
    return replace(request, cases=cases, loaded=loaded, notes=(*request.notes, *_notes(request.cases, steps)))


def _notes(cases: Sequence[Case], steps: Sequence[Case]) -> tuple[Fact, ...]:
    others = tuple(case.id for case in cases if case not in steps)
    return (fact("ranks.left_out", severity=Severity.NOTABLE, case_ids=others),) if others else ()


def _obstacle(spread: Ranks, loaded: LoadedConfig, fingerprint: Fingerprint) -> UsageError | None:
    """Why a cell does not fit; None where it does."""
    threads = None if loaded.config.cpus is not None else spread.ranks * (spread.threads or 1)
    wanted = replace(loaded, config=replace(loaded.config, threads=threads))
    try:
        spread.cpus(sockets_of(fingerprint, choose_cpus(wanted, fingerprint).cpus))
    except UsageError as error:
        return UsageError(f"--ranks {spread.ranks}: {error}")
    return None


def _cases(step: Case, threads: int, ranks: int) -> list[Case]:
    """The cases of a cell: one rank alone, or several with and without an exchange of gradients."""
    plain = dataclasses.replace(step, parameters=tuple(pair for pair in step.parameters if pair[0] not in RANK_OPTIONS))
    ways = list(Parallel) if ranks > 1 else [Parallel.DDP]
    chosen = {"threads": str(threads), "ranks": str(ranks)}
    return [with_options(plain, {**chosen, "parallel": way.value}, BENCHMARKS) for way in ways]
