"""All rules, what they find in one step, and what of that is new since the baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from perfguard.profile.advice import denormals, formats, frozen_layers, kernels, process, small_ops
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.gains import measured_gains
from perfguard.profile.advice.hints import Hint, severity_by
from perfguard.profile.advice.toggles import ANSWERS
from perfguard.profile.advice.trials import Program, after_edit, with_setting, with_variables
from perfguard.profile.changes.counted import ChangeRule
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.records.facts import Severity, Subject
from perfguard.records.steps.findings import PREFIX, Finding
from perfguard.records.steps.ops import Attribution, ChangeClass, OpCountChange, StepPhase


class AdviceRule(NamedTuple):
    """One kind of advice."""

    find: Callable[[Evidence], Iterable[Hint]]  # Says what it found; nothing where its evidence is missing
    codes: tuple[str, ...]  # Codes of its findings, without their prefix
    change: ChangeRule | None = None  # Kind of difference between two op counts that shows the same thing


RULES: Sequence[AdviceRule] = (
    AdviceRule(process.thread_count, ("threads", "idle_cpus")),
    AdviceRule(kernels.reference_kernels, ("reference_kernel", "slow_convolution"), ChangeRule.IMPLEMENTATION),
    AdviceRule(kernels.emulated_dtypes, ("emulated_dtype",), ChangeRule.DTYPE),
    AdviceRule(kernels.capped_isa, ("capped_isa",)),
    AdviceRule(denormals.denormals, ("denormals", "suspected_denormals")),
    AdviceRule(formats.layout_lost, ("layout_lost",), ChangeRule.LAYOUT),
    AdviceRule(formats.mixed_layouts, ("mixed_layouts",), ChangeRule.LAYOUT),
    AdviceRule(formats.channels_last_untried, ("channels_last_untried",)),
    AdviceRule(formats.reorders, ("reorders",), ChangeRule.REORDERS),
    AdviceRule(partial(formats.copies, are_casts=False), ("copies",), ChangeRule.COPIES),
    AdviceRule(partial(formats.copies, are_casts=True), ("casts",), ChangeRule.DTYPE),
    AdviceRule(formats.bf16_untried, ("bf16_untried",)),
    AdviceRule(formats.double_precision, ("double_precision",), ChangeRule.DTYPE),
    AdviceRule(small_ops.unfused_optimizers, ("unfused_optimizer",), ChangeRule.FUSION),
    AdviceRule(
        frozen_layers.frozen_backward, ("frozen_backward", "frozen_backward_for_norms", "unused_weight_gradients")
    ),
    AdviceRule(frozen_layers.frozen_norms, ("frozen_batch_norm",), ChangeRule.FUSION),
    AdviceRule(small_ops.fragmented_trace, ("fragmented_trace",)),
    AdviceRule(process.allocator_faults, ("allocator_faults",), ChangeRule.ALLOCATIONS),
    AdviceRule(process.primitive_cache_misses, ("primitive_cache_misses",), ChangeRule.CACHE_MISSES),
    AdviceRule(process.input_pipeline, ("input_pipeline", "python_before_model", "loader_workers")),
    AdviceRule(process.compiler_events, ("graph_breaks", "recompiles"), ChangeRule.COMPILE),
    AdviceRule(formats.low_precision_loss, ("low_precision_loss",)),
)
"""In the order in which findings of equal weight are read: what spoils all times first."""

_SEVERITIES = tuple(Severity)
_NAMED_OPS = 5
_SHOWN_CHANGES = 2
_MORE = frozenset({ChangeClass.NEW, ChangeClass.MORE_CALLS, ChangeClass.SLOWER, ChangeClass.OTHER_IMPLEMENTATION})
"""Changes of ops that can give rise to a finding."""


def advise(evidence: Evidence, rules: Sequence[AdviceRule] = RULES) -> tuple[Finding, ...]:
    """What rules find: the worst first, then what is new since the baseline, then the largest part of the step.

    Where two arms were compared, the evidence is the candidate's. A rule whose evidence is missing finds nothing.
    """
    found = [finding for rule in rules for finding in _findings(evidence, rule)]
    return tuple(sorted(found, key=lambda each: (_rank(each), not each.since_baseline, -(each.share or 0.0))))


def _rank(finding: Finding) -> int:
    return _SEVERITIES.index(finding.severity)


def _findings(evidence: Evidence, rule: AdviceRule) -> Iterator[Finding]:
    """What a rule finds, each with what the op counts say about the same thing."""
    all_changes = evidence.comparison.op_count_changes if evidence.comparison is not None else ()
    changes = [change for change in all_changes if rule.change is not None and change.rule == rule.change.value]
    for hint in rule.find(evidence):
        finding = _finding(evidence, hint)
        if finding is not None:
            new = [change.fact for change in changes if _is_at(change, finding)]
            yield replace(finding, since_baseline=tuple(new[:_SHOWN_CHANGES]))


def _finding(evidence: Evidence, hint: Hint) -> Finding | None:
    """A hint with its place and its part of the step; None where that part is too small or cannot be known."""
    ops = sorted(hint.ops, key=lambda total: (-total.self_s, total.key.phase, total.key.module, total.key.op))
    share = None
    if ops or hint.primitives:
        share = evidence.ratio_of(evidence.seconds_of(ops) + sum(each.time_s for each in hint.primitives))
    if hint.least_share and (share is None or share < hint.least_share):
        return None
    places = {
        *((total.key.phase, total.key.module) for total in ops),
        *((each.phase, each.module) for each in hint.primitives if each.phase is not None),
        *hint.places,
    }
    phases, modules = {phase for phase, _ in places}, {module for _, module in places}
    target = evidence.target
    return Finding(
        code=PREFIX + hint.code,
        severity=hint.severity or severity_by(share),
        subject=Subject(
            case_id=target.case_id or None,
            op=_path(modules) or None,
            place=next((total.source for total in ops if total.source), None),
        ),
        values=hint.values,
        seen=tuple(hint.seen),
        phases=tuple(phase for phase in StepPhase if phase in phases),
        places=len(modules),
        ops=tuple(total.key for total in ops[:_NAMED_OPS]),
        share=share,
        measured=measured_gains(hint.code, evidence.fingerprint.machine_id if evidence.fingerprint else None),
        command=_command(target, hint),
    )


def _command(target: Program, hint: Hint) -> str:
    """What measures whether following a hint helps: at once, where the environment or a setting follows it."""
    if hint.variables:
        return with_variables(target, hint.variables, hint.profile)
    answers = ANSWERS.get(PREFIX + hint.code, ())
    settings = [answer for answer in answers if answer[1] in target.settings.get(answer[0], ())]
    return with_setting(target, *settings[0]) if settings else after_edit(target)


def _path(modules: Collection[str]) -> str:
    """One module by its path, modules of one pattern by that, others by the part of the model that they share."""
    patterns = {pattern_of(module) for module in modules}
    if len(modules) > 1 and len(patterns) == 1:
        return patterns.pop()
    parts = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(same[0] for same in takewhile(lambda names: len(set(names)) == 1, parts))


def _is_at(change: OpCountChange, finding: Finding) -> bool:
    """Whether a change is at a finding's modules, or one of the two names none."""
    place, modules = f"{change.module}.", {f"{pattern_of(key.module)}." for key in finding.ops}
    overlap = any(place.startswith(module) or module.startswith(place) for module in modules)
    return overlap or not change.module or not modules


def new_findings(
    baseline: Sequence[Finding], candidate: Sequence[Finding], comparison: Attribution
) -> tuple[Finding, ...]:
    """Findings that only the candidate has, or has with a higher severity, in their order.

    Most rules have a threshold, and two runs of one step may lie on both sides of it. So where nothing changed at the
    places of a finding, by a comparison of all ops, it is not new; what concerns a whole process changes only with its
    environment.
    """
    known = {_identity(finding): _rank(finding) for finding in reversed(baseline)}
    changed = {(delta.key.phase, delta.key.module) for delta in comparison.deltas if delta.change in _MORE}
    return tuple(
        finding
        for finding in candidate
        if _rank(finding) < known.get(_identity(finding), len(_SEVERITIES)) and _has_cause(finding, comparison, changed)
    )


def _identity(finding: Finding) -> Hashable:
    return finding.code, tuple(finding.values.items())


def _has_cause(finding: Finding, comparison: Attribution, changed: Collection[tuple[StepPhase, str]]) -> bool:
    """Whether something changed that the finding can come from."""
    if finding.since_baseline:
        return True
    if finding.ops:
        return any((key.phase, key.module) in changed for key in finding.ops)
    if finding.code == f"{PREFIX}reorders":  # they are counted, so only more of them are news
        return any(change.rule == ChangeRule.REORDERS.value for change in comparison.op_count_changes)
    return finding.share is None or bool(comparison.op_count_changes)  # of a process; of other primitives
