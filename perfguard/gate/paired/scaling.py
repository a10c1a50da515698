"""Throughput of training steps over ranks and threads, from the times of their cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.records.case_names import CaseName, split_case_id
from perfguard.records.ranks import RANK_OPTIONS, Parallel, Ranks, has_ranks, ranks_of
from perfguard.records.result import CaseMeasured, ScalingCell

_STEPS = frozenset(spec.name for spec in BENCHMARKS if has_ranks(spec.target))
_BATCH = "batch"  # The parameter that says how many examples a step of one rank takes


def scaling_of(measured: Iterable[CaseMeasured], *, cpus: int) -> tuple[ScalingCell, ...]:
    """The cells of every step that was measured with several numbers of ranks or threads, on so many CPUs.

    Throughput is normalised to the step's first cell: the fewest threads, of those the fewest ranks.
    """
    by_step: dict[str, list[ScalingCell]] = {}
    for case in measured:
        name = split_case_id(case.case_id)
        parameters = dict(name.parameters)
        if name.benchmark in _STEPS and _BATCH in parameters:
            spread = ranks_of(parameters) or Ranks(threads=cpus)
            examples = int(parameters[_BATCH]) * spread.ranks
            cell = ScalingCell(
                case_id=case.case_id,
                step=_without_ranks(name),
                threads=spread.threads or max(1, cpus // spread.ranks),
                ranks=spread.ranks,
                parallel=spread.parallel.value if spread.ranks > 1 else None,
                examples_per_s=None if case.median_s is None else examples / case.median_s,
                throughput_ratio=None,
            )
            by_step.setdefault(cell.step, []).append(cell)
    return tuple(cell for cells in by_step.values() if len(cells) > 1 for cell in _normalized(cells))


def _normalized(cells: Sequence[ScalingCell]) -> list[ScalingCell]:
    ordered = sorted(cells, key=lambda cell: (cell.threads, cell.ranks, cell.parallel == Parallel.PLAIN.value))
    first = ordered[0].examples_per_s
    return [
        cell
        if first is None or cell.examples_per_s is None
        else replace(cell, throughput_ratio=cell.examples_per_s / first)
        for cell in ordered
    ]


def _without_ranks(name: CaseName) -> str:
    kept = ",".join(f"{key}={value}" for key, value in name.parameters if key not in RANK_OPTIONS)
    return f"{name.benchmark}[{kept}]"
