"""Steps that wait for their data, and loader processes that take the CPUs of the training threads."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import PYTHON_OP, StepPhase
from perfguard.units import format_count, format_seconds, format_share

ID = "input-pipeline"
LEAST_SHARE = 0.1
"""Part of a step in loading from which it is told: a batch has to be put together in any case, and less than a tenth of
a step for that is nothing that a cheaper way could win much of. A judgement, not a measurement."""

_MOSTLY = 0.8
"""Part of that time in no op from which it may be anything, not only loading."""

_GAIN = Gain(
    text="unknown; on CPUs worker processes are advised against, for they compete with the training threads, and a "
    "faster decoder for images instead; a submission to MLPerf Training on CPUs ran without workers",
    source="Fu et al. (2022), arXiv:2206.10034, §2.4; Intel's MLPerf Training v3.0 results",
)


def _find(evidence: Evidence) -> list[Finding]:
    found = [_loading(evidence), _workers(evidence)]
    return [finding for finding in found if finding is not None]


def _loading(evidence: Evidence) -> Finding | None:
    loading = [total for total in evidence.totals if total.key.phase is StepPhase.LOAD]
    share = evidence.share_of(loading)
    if share is None or share < LEAST_SHARE:
        return None
    loading_s = evidence.seconds_of(loading)
    python_s = evidence.seconds_of([total for total in loading if total.key.op == PYTHON_OP])
    is_python = python_s >= _MOSTLY * loading_s
    inside = f", of which {format_seconds(python_s)} in no op: files, decoding, or other Python" if python_s > 0 else ""
    return finding_on(
        evidence,
        loading,
        rule_id=ID,
        title="Python holds the model up, for its data or for something else"
        if is_python
        else "the step waits for its data",
        severity=severity_by(share),
        seen=(
            f"what precedes the model takes {format_seconds(loading_s)} a step, {format_share(share)} of it{inside}",
        ),
        gain=_GAIN,
        trial=after_edit(
            evidence.subject,
            "look at what the line above does besides; take out of the step what need not be in it"
            if is_python
            else "decode and transform once and keep the tensors, load them in larger pieces, or decode images with "
            "Pillow-SIMD",
        ),
    )


def _workers(evidence: Evidence) -> Finding | None:
    workers = sum(evidence.program.loader_workers) if evidence.program is not None else 0
    if not workers or evidence.threads is None or evidence.cpus is None or workers + evidence.threads <= evidence.cpus:
        return None
    loaders = "1 loader process" if workers == 1 else f"{workers} loader processes"
    return Finding(
        id=ID,
        title="data loaders compete with the training threads",
        severity=Severity.HINT,
        seen=(f"{loaders} and {format_count(evidence.threads, 'thread')} on {format_count(evidence.cpus, 'CPU')}",),
        where="",
        ops=(),
        share=None,
        gain=_GAIN,
        trial=after_edit(evidence.subject, "DataLoader(…, num_workers=0), or fewer threads for training"),
    )


RULE = Rule(id=ID, finds="steps that wait for data, loaders that compete with training", find=_find)
