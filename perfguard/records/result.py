"""The result of a command, as `result.json` and `--format json` show it. Schema version 2."""

from __future__ import annotations

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCountChange
from perfguard.records.verdict import GateResult

RESULT_SCHEMA = 2


class ArmSummary(Struct, frozen=True, kw_only=True):
    """One side, for the reader."""

    text: str  # As typed, or `stored <path>`
    source_id: str | None
    interpreter: str | None  # Executable; None for a stored baseline
    python: str | None
    torch: str | None
    stack_id: str | None
    commit: str | None = None
    """Commit that the source tree is, or was made from; where `source_id` has a plus, something was changed since."""


class CaseMeasured(Struct, frozen=True, kw_only=True):
    """What one arm measured of a case, where nothing is compared."""

    case_id: str
    rounds: int  # Independent rounds (processes)
    median_s: float | None  # Median of the rounds' medians, seconds for one iteration
    between_sd_ratio: float | None  # Standard deviation of the rounds' log medians
    within_sd_ratio: float | None  # Typical standard deviation inside a round
    inner_loops: int | None  # Iterations of one sample
    problem: Fact | None = None  # Why nothing was measured


class ScalingCell(Struct, frozen=True, kw_only=True):
    """How fast a training step is on some ranks with some threads each."""

    case_id: str
    step: str  # Id of the case without ranks and threads: cells of one table have the same
    threads: int  # Threads of each rank
    ranks: int
    parallel: str | None  # `ddp` or `plain`; None for one rank
    examples_per_s: float | None  # Of all ranks together; None where the case failed
    throughput_ratio: float | None  # Over that of the table's first cell: the fewest threads, then the fewest ranks


class RunResult(Struct, frozen=True, kw_only=True):
    """What a command found."""

    schema: int = RESULT_SCHEMA
    command: str  # `run`, `compare`, `gate` or `baseline update`
    run_id: str  # Name of the run's folder
    folder: str
    suite: str
    machine_id: str
    machine: str  # One line for people
    cpus: tuple[int, ...]  # CPUs that were measured on
    arms: dict[str, ArmSummary]  # By role: `baseline`, `candidate`
    gate: GateResult | None  # The verdicts; None where nothing was compared
    measured: tuple[CaseMeasured, ...] = ()  # What was measured, where nothing is compared
    scaling: tuple[ScalingCell, ...] = ()  # Throughput over ranks and threads, by step, where several were measured
    exit_code: int
    verdict: str  # Value of GateOutcome, `measured` or `interrupted`
    reasons: tuple[Fact, ...]  # What led to it, the deciding fact first
    notes: tuple[Fact, ...] = ()  # What the reader should know
    duration_s: float  # Wall seconds of the whole command
    error_rate: Fact | None = None  # Known error rates of gates on this machine, also in `notes`; None without a gate
    op_count_changes: dict[str, tuple[OpCountChange, ...]] = field(default_factory=dict)
    """What changed by op counts, by case id, worst first; without cases that were not counted."""
    attributions: tuple[Attribution, ...] = ()
    """Culprits of the cases that were profiled; the largest differences of each, all of them are in
    the run's folder."""
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Advice on what the candidate does and the baseline does not, by case id, the worst first; only of cases whose
    both arms were profiled, without those that there is nothing to advise on."""
    stored_op_count_changes: dict[str, tuple[OpCountChange, ...]] = field(default_factory=dict)
    """The same as `op_count_changes`, against a baseline that was stored on another machine of the same instruction
    sets; a note names it. Empty where there is a baseline of this machine, or no such one."""
