"""All rules, what they find in one step, and what of that is new since the baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace

from perfguard.profile.advice import (
    copies,
    denormals,
    dtypes,
    frozen_layers,
    instructions,
    kernels,
    layouts,
    optimizers,
    steady_steps,
    threads,
    tiny_ops,
)
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.records.facts import Severity
from perfguard.records.steps.findings import PREFIX, Finding
from perfguard.records.steps.ops import Attribution, ChangeClass, OpCountChange, OpKey, StepPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of advice."""

    find: Callable[[Evidence], Sequence[Finding]]
    """Gives its findings; none where its evidence is missing."""
    codes: tuple[str, ...]
    """Codes of its findings, without their prefix."""
    change: ChangeRule | None = None
    """Kind of difference between two op counts that tells of the same thing."""


RULES: Sequence[Rule] = (
    Rule(find=threads.thread_count, codes=("threads", "idle_cpus")),
    Rule(
        find=kernels.reference_kernels, codes=("reference_kernel", "slow_convolution"), change=ChangeRule.IMPLEMENTATION
    ),
    Rule(find=instructions.emulated_dtypes, codes=("emulated_dtype",), change=ChangeRule.DTYPE),
    Rule(find=instructions.capped_isa, codes=("capped_isa",)),
    Rule(find=denormals.denormals, codes=("denormals", "suspected_denormals")),
    Rule(find=layouts.layout_lost, codes=("layout_lost",), change=ChangeRule.LAYOUT),
    Rule(find=layouts.mixed_layouts, codes=("mixed_layouts",), change=ChangeRule.LAYOUT),
    Rule(find=layouts.channels_last_untried, codes=("channels_last_untried",)),
    Rule(find=copies.reorders, codes=("reorders",), change=ChangeRule.REORDERS),
    Rule(find=copies.copies, codes=("copies",), change=ChangeRule.COPIES),
    Rule(find=copies.casts, codes=("casts",), change=ChangeRule.DTYPE),
    Rule(find=dtypes.double_precision, codes=("double_precision",), change=ChangeRule.DTYPE),
    Rule(find=optimizers.unfused_optimizers, codes=("unfused_optimizer",), change=ChangeRule.FUSION),
    Rule(
        find=frozen_layers.frozen_backward,
        codes=("frozen_backward", "frozen_backward_for_norms", "unused_weight_gradients"),
    ),
    Rule(find=frozen_layers.frozen_norms, codes=("frozen_batch_norm",), change=ChangeRule.FUSION),
    Rule(find=tiny_ops.fragmented_trace, codes=("fragmented_trace",)),
    Rule(find=steady_steps.allocator_faults, codes=("allocator_faults",), change=ChangeRule.ALLOCATIONS),
    Rule(find=steady_steps.primitive_cache_misses, codes=("primitive_cache_misses",), change=ChangeRule.CACHE_MISSES),
    Rule(find=threads.input_pipeline, codes=("input_pipeline", "python_before_model", "loader_workers")),
    Rule(find=steady_steps.compiler_events, codes=("graph_breaks", "recompiles"), change=ChangeRule.COMPILE),
    Rule(find=dtypes.low_precision_loss, codes=("low_precision_loss",)),
)
"""In the order in which findings of equal weight are read: what spoils all times first."""

_SEVERITIES = tuple(Severity)
_SHOWN_CHANGES = 2
_MORE = frozenset({ChangeClass.NEW, ChangeClass.MORE_CALLS, ChangeClass.SLOWER, ChangeClass.OTHER_IMPLEMENTATION})
"""Changes of ops that can give rise to a finding."""


def advise(evidence: Evidence, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What all rules find: the worst first, then what is new since the baseline, then the largest part of the step.

    Args:
        evidence: Of the candidate, where two arms were compared. A rule whose evidence is missing finds nothing.
        rules: Which rules to ask.
    """
    found = [_since_baseline(evidence, rule, finding) for rule in rules for finding in rule.find(evidence)]
    return tuple(sorted(found, key=_reading_order))


def _reading_order(finding: Finding) -> tuple[int, bool, float]:
    return _SEVERITIES.index(finding.severity), not finding.since_baseline, -(finding.share or 0.0)


def _since_baseline(evidence: Evidence, rule: Rule, finding: Finding) -> Finding:
    """Add what the op counts say about the same thing."""
    changes = evidence.comparison.op_count_changes if evidence.comparison is not None else ()
    facts = [change.fact for change in changes if _is_about(change, rule, finding)]
    return replace(finding, since_baseline=tuple(facts[:_SHOWN_CHANGES]))


def _is_about(change: OpCountChange, rule: Rule, finding: Finding) -> bool:
    """Whether a change is of the rule's kind and, where both name modules, at the finding's."""
    if rule.change is None or change.rule != rule.change.value:
        return False
    modules = {pattern_of(key.module) for key in finding.ops}
    return not change.module or not modules or any(_overlap(change.module, module) for module in modules)


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def new_findings(
    baseline: Sequence[Finding], candidate: Sequence[Finding], comparison: Attribution
) -> tuple[Finding, ...]:
    """Findings that only the candidate has, or has in a graver form, in their order.

    Most rules have a threshold, and two runs of one step may lie on both sides of it. So where nothing changed at the
    places of a finding, it is not new; what is told of a whole process changes only with its environment.

    Args:
        baseline: Its findings.
        candidate: Its findings.
        comparison: Of the two, with all ops.
    """
    known = {_identity(finding): _SEVERITIES.index(finding.severity) for finding in reversed(baseline)}
    places = {_place(delta.key) for delta in comparison.deltas if delta.change in _MORE}
    return tuple(
        finding
        for finding in candidate
        if _SEVERITIES.index(finding.severity) < known.get(_identity(finding), len(_SEVERITIES))
        and _has_cause(finding, comparison, places)
    )


def _identity(finding: Finding) -> Hashable:
    return finding.code, tuple(finding.values.items())


def _has_cause(finding: Finding, comparison: Attribution, places: Collection[tuple[StepPhase, str]]) -> bool:
    """Whether something changed that the finding can come from."""
    if finding.since_baseline:
        return True
    if finding.ops:
        return any(_place(key) in places for key in finding.ops)
    if finding.code == f"{PREFIX}reorders":  # they are counted, so only more of them are news
        return any(change.rule == ChangeRule.REORDERS.value for change in comparison.op_count_changes)
    return finding.share is None or bool(comparison.op_count_changes)  # of a process; of other primitives


def _place(key: OpKey) -> tuple[StepPhase, str]:
    return key.phase, key.module
