"""What a training step executes, and what of it changed: ops, primitives, op counts, attribution."""

from __future__ import annotations

import math
from enum import Enum

from msgspec import Struct

from perfguard.records.facts import Fact

PYTHON_OP = "(python)"
"""Name of the pseudo-op that holds a place's time in no op: the interpreter, dispatch, code that torch does not see."""


class StepPhase(str, Enum):
    """Part of a training step."""

    LOAD = "load"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class OpKey(Struct, frozen=True, kw_only=True):
    """One kind of op at one place of the step. Ops of two profiles are aligned by it."""

    phase: StepPhase
    module: str
    """Path of the module that called it, from the root's class: `ResNet.layer3.0.conv1`; for backward, of the forward
    op that it belongs to; the optimizer's class for updates; empty outside all of them."""
    op: str  # `aten::convolution_backward`, an autograd or user annotation, or `PYTHON_OP`
    shapes: str  # Of its tensors: `[2,64,56,56] [64,64,1,1]`; empty where the trace has none
    dtypes: str  # Of its tensors, short: `bf16 bf16`; empty where the trace has none
    layouts: str  # Of its tensors: `channels_last contiguous`, also `strided`; empty where the trace has none


class OpTotal(Struct, frozen=True, kw_only=True):
    """An op's part of a step, averaged over the profiled steps."""

    key: OpKey
    calls: float  # Calls in a step
    self_s: float  # Seconds of a step inside it and in no op below it, profiler included
    source: str | None = None  # `train.py:88`, the innermost line outside libraries that led to it; None where unknown
    implementations: tuple[str, ...] = ()  # What oneDNN chose for it, sorted: `brg_conv_fwd:avx512_core`


class PrimitiveTotal(Struct, frozen=True, kw_only=True):
    """One oneDNN (or MKL) problem of a step, averaged over the profiled steps."""

    library: str  # `onednn` or `mkl`
    primitive: str  # `convolution`, `matmul`, `reorder`, …; for MKL the routine, `sgemm`
    direction: str  # `FWD_D`, `BWD_D`, `BWD_W`, `BWD_DW`, or empty where the primitive has none; benchdnn's words
    implementation: str  # `brg_conv_fwd:avx512_core`; empty for MKL
    memory: str  # Memory descriptors as logged: types, layouts, strides
    problem: str  # The problem in benchdnn's syntax; the routine's arguments for MKL
    calls: float  # Executions in a step
    time_s: float  # Seconds in a step, as the library reports them; resolution 0.24 us a call
    phase: StepPhase | None = None  # Part of the step, where the call could be placed
    module: str = ""  # Module, likewise
    op: str = ""  # ATen op that made the call, likewise


class OpCountKind(str, Enum):
    """What a row of op counts counts."""

    OP = "op"
    PRIMITIVE = "primitive"
    ALLOCATION = "allocation"
    COMPILE = "compile"


class OpCountRow(Struct, frozen=True, kw_only=True):
    """One counted thing of a steady step. Rows of op counts are sorted and unique but for their counts."""

    kind: OpCountKind
    phase: StepPhase
    module: str  # Pattern of the module's path, numbers as `*`: `ResNet.layer3.*.conv1`
    name: str  # Op, primitive with direction (`convolution FWD_D`), `allocations`, or compiler event (`graph_break`)
    detail: str  # Shapes, dtypes and layouts of an op; layouts and problem of a primitive; reason of a compiler's event
    implementation: str  # What the library chose; empty for all but primitives
    count: int  # How often in one step
    size_bytes: int = 0  # Bytes allocated in one step; 0 for all but allocations


class OpCounts(Struct, frozen=True, kw_only=True):
    """The exact, deterministic count of what a steady step of one case executes."""

    case_id: str
    isa_class: str  # ISA that the libraries could choose from: `avx512_core_bf16`; other classes are not compared
    torch: str  # Version; another one may rightly count otherwise, so changes then name the upgrade
    rows: tuple[OpCountRow, ...]  # Sorted


class OpCountChange(Struct, frozen=True, kw_only=True):
    """One change between two op counts."""

    fact: Fact  # What changed: `copies.added` with its counts, phases and module
    phase: StepPhase
    module: str  # Pattern of the modules' path; empty where it is spread over several
    rule: str
    """`implementation`, `reorders`, `copies`, `fusion`, `cache-misses`, `dtype`, `layout`, `shapes`, `calls`,
    `allocations`, `compile`: what kind of difference it is, worst first."""
    before: int  # Count in the baseline's step
    after: int  # Count in the candidate's step


class ChangeClass(str, Enum):
    """What happened to an op between two profiles."""

    NEW = "new"
    GONE = "gone"
    MORE_CALLS = "more calls"
    FEWER_CALLS = "fewer calls"
    SLOWER = "slower per call"
    FASTER = "faster per call"
    OTHER_IMPLEMENTATION = "other implementation"
    MOVED = "moved"
    UNCHANGED = "unchanged"


class OpDelta(Struct, frozen=True, kw_only=True):
    """One op in both arms."""

    key: OpKey
    change: ChangeClass  # What happened to it
    baseline_s: float  # Seconds in a step of the baseline, the profiler's own cost taken out
    candidate_s: float  # The same of the candidate
    delta_s: float  # Candidate minus baseline
    lower_s: float  # Lower end of its 95 % interval over repeated interleaved steps; -inf where it is unknown
    upper_s: float  # Upper end; inf where it is unknown
    q: float  # p of H0 `no difference`, after Benjamini-Hochberg over the list; 1 where nothing can be said
    baseline_calls: float  # Calls in a step of the baseline
    candidate_calls: float  # The same of the candidate
    source: str | None = None  # Line of the user's code, where known
    detail: str = ""  # What changed about it: `brg_conv:avx512_core → ref:any`; empty where only times changed


class StepBalance(Struct, frozen=True, kw_only=True):
    """Where the difference between two steps went; `delta = ops + python + idle + unexplained`."""

    baseline_s: float  # Step of the baseline, not profiled
    candidate_s: float  # Step of the candidate, not profiled
    delta_s: float  # Candidate minus baseline
    lower_s: float  # Lower end of its 95 % interval; -inf where it is unknown
    upper_s: float  # Upper end; inf where it is unknown
    ops_s: float  # Sum of the ops' differences
    python_s: float  # Difference of the time in no op, on the CPU: interpreter and dispatch
    idle_s: float  # Difference of the time in which the step's thread did not run
    unexplained_s: float  # What is left
    overhead_ratio: float  # How much longer a profiled step of the baseline takes; never part of a verdict
    unexplained_lower_s: float = -math.inf  # Lower end of the 95 % interval of what is left; -inf where it is unknown
    unexplained_upper_s: float = math.inf  # Upper end; inf where it is unknown

    @property
    def is_in_doubt(self) -> bool:
        """Whether the difference is within its noise, so that it has no direction and no parts."""
        return math.isfinite(self.lower_s) and self.lower_s <= 0 <= self.upper_s


class Culprit(Struct, frozen=True, kw_only=True):
    """Cause of a part of the step's difference: one or several ops."""

    fact: Fact  # What changed: `optimizer.unfused` with counts, module and line; from the op counts where they show it
    change: ChangeClass
    phase: StepPhase
    delta_s: float  # Its part of the step's difference
    lower_s: float  # Lower end of the 95 % interval
    upper_s: float
    share: (
        float  # Part of the step's difference, 1 for all of it; nan where either is within its noise. At most 1 in all
    )
    ops: tuple[OpKey, ...]  # The ops, largest difference first
    phases: tuple[StepPhase, ...] = ()  # Those that each have a good part of it; empty where only `phase` is known

    @property
    def is_within_noise(self) -> bool:
        """Whether the change is certain and its cost is not: its interval holds 0."""
        return math.isfinite(self.lower_s) and self.lower_s <= 0 <= self.upper_s


class Attribution(Struct, frozen=True, kw_only=True):
    """Which ops made a case's step slower or faster."""

    case_id: str
    balance: StepBalance  # Where the difference went
    culprits: tuple[Culprit, ...]  # Largest part first; then certain changes of uncertain cost
    deltas: tuple[OpDelta, ...]  # Every op, largest absolute difference first
    op_count_changes: tuple[OpCountChange, ...]  # What changed by op counts, worst first
    processes: int  # Pairs of processes that were profiled
    steps: int  # Profiled steps of each arm, all processes together
    notes: tuple[Fact, ...] = ()  # What to know before it is believed: a trace was cut off, or one process an arm
