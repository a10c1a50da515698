"""What will be measured, and how: arms, blocks, plan. Everything here is recorded with the run."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from perfguard.records.run import Arm
from perfguard.records.spec import Case


class EnvProfile(str, Enum):
    """How much of a worker's environment perfguard decides."""

    STABLE = "stable"
    PRODUCTION = "production"


class ArmSpec(Struct, frozen=True, kw_only=True):
    """An arm as it was asked for, its parts joined by `+`.

    `git:REV`, `dir:PATH`, `python:PATH`, `env:KEY=VALUE,…`, `set:NAME=VALUE,…`, `stack:NAME`.
    """

    text: str  # As typed
    stored: bool = False  # The stored baseline of this machine
    revision: str | None = None  # Git revision whose tree is measured
    directory: str | None = None  # Directory whose tree is measured
    interpreter: str | None = None  # Interpreter of the environment under test
    environment: tuple[tuple[str, str], ...] = ()  # Of this arm only, sorted; an empty value unsets a variable
    parameters: tuple[tuple[str, str], ...] = ()  # Of all cases that have them, in this arm only, sorted
    stack: str | None = None  # Named software stack, for instance `ipex`


class Sandbox(Struct, frozen=True, kw_only=True):
    """What code that is not trusted may see and change; beside it, it may read the system, but no folder of a user."""

    writable: tuple[str, ...] = ()  # Folders
    readable: tuple[str, ...] = ()  # Folders and files, where they lie in folders that are hidden
    hidden: tuple[str, ...] = ()  # Folders that are hidden, beside those of users and those for temporary files
    network: bool = False  # Whether it may use the network, not the loopback device alone


class ResolvedArm(Struct, frozen=True, kw_only=True):
    """An arm that can be started."""

    role: Arm
    spec: ArmSpec  # What it was resolved from
    interpreter: str  # Absolute path of the interpreter
    tree: str | None  # Absolute path of the source tree; None for stored baselines
    bundle: str  # Absolute path of the worker bundle
    code_roots: tuple[str, ...]  # Directories that hold the code under test
    source_id: str  # Git tree id or content description of the source tree, for attestation
    commit: str | None  # Commit that the source tree is, or was made from; None outside git
    environment: tuple[tuple[str, str], ...]  # The worker's whole one, sorted, without padding and per-block values
    sandbox: Sandbox | None = None  # What the arm's code may see and change; None: all that perfguard may


class Injection(Struct, frozen=True, kw_only=True):
    """A slowdown added on purpose inside the timed region, to test the gate itself."""

    pattern: str  # Case id or selection pattern
    effect_ratio: float  # Target effect, for instance 0.05; negative values slow the baseline instead


class GateSettings(Struct, frozen=True, kw_only=True):
    """What a command's gates do beside comparing; the configuration says the rest."""

    uses_allowances: bool = True  # Whether the allow-list applies; not where every slowdown must be seen
    uses_calibrated_margins: bool = True  # Whether placebo floors widen margins; not where they are measured
    banks_identical: bool = True  # Whether a gate of identical arms is kept for the next calibration
    follows_up: bool = True  # Whether ops are counted, and flags confirmed and explained
    ends_early: bool = True  # Whether a case with an answer is left; not where its figure must not depend on that


DEFAULT_GATE = GateSettings()
FOR_CALIBRATION = GateSettings(uses_allowances=False, uses_calibrated_margins=False, banks_identical=False)
"""Gates that count false alarms and measure the margins."""
FOR_BISECTION = GateSettings(uses_allowances=False)  # Gates that search for a slowdown that is known
FOR_TRIALS = GateSettings(uses_allowances=False, banks_identical=False, follows_up=False)
"""Gates that ask what a setting gains; that it gains nothing needs no second proof and no culprit."""
FOR_FINAL_TRIAL = GateSettings(uses_allowances=False, banks_identical=False, follows_up=False, ends_early=False)
"""The gate that says what the chosen settings gain."""


LEAST_SAMPLES = 3
"""Samples of each arm and case that a block has at least, unless the settings ask for fewer."""


class MeasureSettings(Struct, frozen=True, kw_only=True):
    """How the runner measures; the same for both arms."""

    sample_s: float = 0.02  # Wanted length of one sample, seconds
    samples: int = 12  # Samples of each arm and case in a block, before they are shared out by length
    warmups: int = 1  # Warm-up samples before them, not used
    budget_s: float = 600.0  # Wall-clock budget of the whole measurement, seconds
    max_blocks: int = 200  # Upper bound on blocks
    seed: int = 0  # Seed of everything random in the plan
    env_profile: EnvProfile = EnvProfile.STABLE  # How much of the environment is pinned
    setup_timeout_s: float = 300.0  # Longest wait for torch's import or one case's set-up
    sample_timeout_s: float = 120.0  # Longest wait for one sample


class CasePlan(Struct, frozen=True, kw_only=True):
    """One case with its calibration."""

    case: Case
    inner_loops: int  # Iterations of one sample, the same in both arms
    iteration_s: float  # Seconds of one iteration as calibrated on the baseline
    instances: int = 1  # Set-ups of the case in one process that take turns, so a block averages over memory layouts
    spin_s: tuple[float, float] = (0.0, 0.0)  # Injected seconds for each iteration of baseline and candidate
    sample_share: float = 1.0  # Its samples over those of the settings: more of a short case, fewer of a long one

    def samples(self, settings: MeasureSettings) -> int:
        """Samples of each arm in a block."""
        return max(min(LEAST_SAMPLES, settings.samples), round(self.sample_share * settings.samples))


class Plan(Struct, frozen=True, kw_only=True):
    """What calibration settled on."""

    cases: tuple[CasePlan, ...]  # Cases that every arm can run
    settings: MeasureSettings  # The run's, with as many samples as the budget holds


class BlockPlan(Struct, frozen=True, kw_only=True):
    """Everything random about one block, drawn before it starts."""

    index: int  # Block number, from 0
    hash_seed: int  # PYTHONHASHSEED of both workers, 1 to 2**32-1; the same for some blocks in a row
    data_seed: int  # Seed of the benchmarks' data in both workers
    setup_order: tuple[int, ...]  # Order in which the cases are set up, as indices into the plan's cases
    case_order: tuple[int, ...]  # Order in which the cases are measured
    first_arms: tuple[Arm, ...]  # The arm that runs its sample first, by case index
    first_started: Arm = Arm.BASELINE  # The arm whose process starts and is set up first
