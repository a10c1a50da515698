"""Ranks of a case: processes that make the same training step at the same time, each on cores of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from perfguard.errors import UsageError
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.spec import ANY_COUNT, ParameterValue

Core = tuple[int, ...]  # CPUs of one core
Sockets = tuple[tuple[Core, ...], ...]  # Cores by socket, or by NUMA node where a socket has several

SOCKETS_VARIABLE = "PERFGUARD_SOCKETS"  # The cores that a worker's ranks may use, as JSON
ALL_THREADS = "all"
_STEPS_MODULE = "perfguard.benchmarks.steps:"
_TRAINING_MODULE = "perfguard.benchmarks.hetero:"


class Parallel(str, Enum):
    """What the ranks of a case have to do with each other."""

    DDP = "ddp"  # DistributedDataParallel over gloo: each step averages the gradients of all ranks
    PLAIN = "plain"  # Independent replicas, which exchange nothing


RANK_OPTIONS: Mapping[str, tuple[ParameterValue, ...]] = {
    "threads": (ALL_THREADS, ANY_COUNT),
    "ranks": (1, ANY_COUNT),
    "parallel": tuple(each.value for each in Parallel),
}
"""Options of every built-in training step, which no factory gets: the worker starts the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """How a case is spread over processes."""

    ranks: int = 1
    threads: int | None = None  # Of each rank; None shares all CPUs evenly
    parallel: Parallel = Parallel.DDP  # Says nothing of one rank

    @property
    def exchanges(self) -> bool:
        """Whether the ranks average their gradients."""
        return self.ranks > 1 and self.parallel is Parallel.DDP

    def cpus(self, sockets: Sockets) -> tuple[tuple[int, ...], ...]:
        """The CPUs of each rank: whole cores, neighbours first, all in one socket.

        Raises:
            UsageError: So many ranks do not fit.
        """
        everything = [cpu for cores in sockets for core in cores for cpu in core]
        threads = self.threads or max(1, len(everything) // self.ranks)
        sets = []
        for cores in sockets:
            own: tuple[int, ...] = ()
            for core in cores:
                own += core
                if len(own) >= threads:
                    sets.append(tuple(sorted(own[:threads])))
                    own = ()
        if len(sets) < self.ranks:
            raise UsageError(
                f"{self.ranks} ranks do not fit on CPU {format_cpu_list(everything)}: each needs {threads} of them, on "
                f"cores of its own within one socket and NUMA node, and there is room for {len(sets)}; name more CPUs "
                "with --cpus or --threads, or ask for fewer ranks or threads"
            )
        return tuple(sets[: self.ranks])


def has_ranks(target: str) -> bool:
    """Whether the cases of a factory have the options of ranks: those of the built-in training steps do."""
    return target.startswith(_STEPS_MODULE)


def runs_apart(target: str, parameters: Mapping[str, ParameterValue]) -> bool:
    """Whether the work of a case is done by processes of its own, which no profiler of the worker sees."""
    return target.startswith(_TRAINING_MODULE) or ranks_of_case(target, parameters) is not None


def ranks_of_case(target: str, parameters: Mapping[str, ParameterValue]) -> Ranks | None:
    """How a case is spread over processes; None where it runs in the worker itself, on all CPUs."""
    return ranks_of(parameters) if has_ranks(target) else None


def ranks_of(parameters: Mapping[str, ParameterValue]) -> Ranks | None:
    """How a built-in step with these parameters is spread; None where it runs in the worker itself, on all CPUs."""
    chosen = {name: parameters.get(name, values[0]) for name, values in RANK_OPTIONS.items()}
    threads, ranks = str(chosen["threads"]), int(chosen["ranks"])
    if ranks == 1 and threads == ALL_THREADS:
        return None
    return Ranks(
        ranks=ranks,
        threads=None if threads == ALL_THREADS else int(threads),
        parallel=Parallel(str(chosen["parallel"])),
    )
