"""All rules, and what they say of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfguard.profile.advice import (
    allocator_faults,
    cache_misses,
    casts,
    channels_last_untried,
    copies,
    denormals,
    double_precision,
    emulated_dtype,
    fragmentation,
    frozen_backward,
    frozen_norm,
    graph_breaks,
    input_pipeline,
    instruction_caps,
    layout_lost,
    low_precision_loss,
    mixed_layouts,
    reference_kernels,
    reorders,
    thread_count,
    unfused_optimizer,
)
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule
from perfguard.profile.op_counts.census import pattern_of
from perfguard.records.steps.findings import Finding, Severity
from perfguard.records.steps.ops import CensusChange

RULES: tuple[Rule, ...] = (
    thread_count.RULE,
    reference_kernels.RULE,
    emulated_dtype.RULE,
    instruction_caps.RULE,
    denormals.RULE,
    layout_lost.RULE,
    mixed_layouts.RULE,
    channels_last_untried.RULE,
    reorders.RULE,
    copies.RULE,
    casts.RULE,
    double_precision.RULE,
    unfused_optimizer.RULE,
    frozen_backward.RULE,
    frozen_norm.RULE,
    fragmentation.RULE,
    allocator_faults.RULE,
    cache_misses.RULE,
    input_pipeline.RULE,
    graph_breaks.RULE,
    low_precision_loss.RULE,
)
"""In the order in which findings of equal weight are read: what spoils all times first."""

_SEVERITIES = tuple(Severity)
_SHOWN_CHANGES = 2


def advise(evidence: Evidence, rules: Sequence[Rule] = RULES) -> tuple[Finding, ...]:
    """What all rules find: the gravest first, then what is new since the baseline, then the largest part of the step.

    Args:
        evidence: Of the candidate, where two arms were compared. A rule whose evidence is missing finds nothing.
        rules: Which rules to ask.
    """
    found = [_since_baseline(evidence, rule, finding) for rule in rules for finding in rule.find(evidence)]
    return tuple(sorted(found, key=_reading_order))


def _reading_order(finding: Finding) -> tuple[int, bool, float]:
    return _SEVERITIES.index(finding.severity), not finding.since_baseline, -(finding.share or 0.0)


def _since_baseline(evidence: Evidence, rule: Rule, finding: Finding) -> Finding:
    """Add what the census says about the same thing."""
    changes = evidence.comparison.census_changes if evidence.comparison is not None else ()
    codes = [change.fact.code for change in changes if _is_about(change, rule, finding)]
    return replace(finding, since_baseline="; ".join(codes[:_SHOWN_CHANGES])) if codes else finding


def _is_about(change: CensusChange, rule: Rule, finding: Finding) -> bool:
    """Whether a change is of the rule's kind and, where both name modules, at the finding's."""
    if change.rule not in {kind.value for kind in rule.changes}:
        return False
    modules = {pattern_of(key.module) for key in finding.ops}
    return not change.module or not modules or any(_overlap(change.module, module) for module in modules)


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
