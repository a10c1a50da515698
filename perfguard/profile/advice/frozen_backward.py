"""Backward of layers that do not learn: gradients that nobody uses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, StepPhase
from perfguard.records.steps.program import ModuleFacts, ProgramFacts
from perfguard.units import format_count, format_seconds

ID = "frozen-backward"
_FOR_WEIGHTS = frozenset({"BWD_W", "BWD_DW"})

_GAIN = Gain(
    text="+16 % in training RetinaNet-ResNeXt50 once two frozen stages no longer computed their backward",
    source="Fu et al. (2022), arXiv:2206.10034",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A module with weights, and what it computes in backward."""

    facts: ModuleFacts
    learns: bool
    """Whether its weights are updated; where no optimizer is known, whether they require gradients."""
    ops: Sequence[OpTotal]
    """Ops of its backward."""
    weights_s: float
    """Seconds in primitives that compute gradients of weights."""

    @property
    def makes_weight_gradients(self) -> bool:
        """Whether gradients of its weights are surely computed; else it may only pass on what others need."""
        return bool(self.facts.trainable or self.weights_s)

    @property
    def is_norm(self) -> bool:
        """Whether it normalises: few weights, often forgotten when layers are frozen."""
        return "norm" in self.facts.kind.lower()


def _find(evidence: Evidence) -> list[Finding]:
    if evidence.program is None:
        return []
    layers = _layers(evidence, evidence.program)
    found = [_of_weights(evidence, layers)]
    # Of several models, a frozen one may pass on the gradients of another that learns, as a discriminator does.
    if len({layer.facts.path.partition(".")[0] for layer in layers}) == 1:
        found += [_for_nobody(evidence, layers), _for_norms(evidence, layers)]
    return [finding for finding in found if finding is not None]


def _layers(evidence: Evidence, program: ProgramFacts) -> list[_Layer]:
    """In the order of their registration.

    Assumes: modules are called in the order in which they are registered. Where they are not, a layer that learns may
    be called before one that is told to compute for nobody, so such findings are hints.
    """
    ops: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.BACKWARD and _computes(total):
            ops[total.key.module].append(total)
    weights_s: dict[str, float] = defaultdict(float)
    for primitive in evidence.primitives:
        if primitive.direction in _FOR_WEIGHTS:
            weights_s[primitive.module] += primitive.time_s
    return [
        _Layer(
            facts=facts,
            learns=bool(facts.updated if program.optimizers else facts.trainable),
            ops=ops[facts.path],
            weights_s=weights_s[facts.path],
        )
        for facts in program.modules
        if facts.parameters
    ]


def _computes(total: OpTotal) -> bool:
    return total.key.op != PYTHON_OP and group_of(total.key.op) not in {Group.VIEWS, Group.AUTOGRAD, None}


def _for_nobody(evidence: Evidence, layers: Sequence[_Layer]) -> Finding | None:
    """Layers before the first one that learns: nothing before them needs a gradient, either."""
    first = _first_that_learns(layers)
    idle = [layer for layer in layers[:first] if layer.ops]
    seen = [
        f"backward of {format_count(len(idle), 'layer')} before the first one that learns: {_named(idle)}",
        *_why(idle),
    ]
    change = (
        "keep autograd out of them: requires_grad_(False) on their parameters and no gradient for the model's input, "
        "or run them under torch.no_grad()"
    )
    return _finding(evidence, idle, "backward runs through layers that nobody learns from", seen, change)


def _for_norms(evidence: Evidence, layers: Sequence[_Layer]) -> Finding | None:
    """Frozen layers that are in backward only because norm layers before them learn."""
    first = _first_that_learns(layers)
    first_other = next((n for n, layer in enumerate(layers) if layer.learns and not layer.is_norm), len(layers))
    if first_other == len(layers):  # norms are all that is trained, on purpose
        return None
    idle = [layer for layer in layers[first:first_other] if layer.ops and not layer.learns]
    norms = [layer for layer in layers[first:first_other] if layer.learns]
    layers_in_vain = format_count(len(idle), "frozen layer")
    seen = [
        f"backward of {layers_in_vain} only serves {format_count(len(norms), 'norm layer')} before: {_named(norms)}"
    ]
    change = "freeze the weights of these norm layers, too, if they are not meant to learn"
    return _finding(evidence, idle, "backward runs through frozen layers to norm layers", seen, change)


def _of_weights(evidence: Evidence, layers: Sequence[_Layer]) -> Finding | None:
    """Gradients of weights that nobody updates, in layers that backward has to pass."""
    idle = [
        layer
        for layer in layers[_first_that_learns(layers) :]
        if layer.ops and not layer.learns and layer.makes_weight_gradients
    ]
    seen = [f"gradients of weights that no optimizer updates, in {format_count(len(idle), 'layer')}: {_named(idle)}"]
    weights_s = math.fsum(layer.weights_s for layer in idle)
    if weights_s:
        seen.append(f"oneDNN computes them in {format_seconds(weights_s)} a step")
    change = "requires_grad_(False) on these parameters, or hand them to an optimizer"
    return _finding(evidence, idle, "gradients of weights are computed for nobody", [*seen, *_why(idle)], change)


def _first_that_learns(layers: Sequence[_Layer]) -> int:
    return next((number for number, layer in enumerate(layers) if layer.learns), len(layers))


def _finding(
    evidence: Evidence, idle: Sequence[_Layer], title: str, seen: Sequence[str], change: str
) -> Finding | None:
    ops = [total for layer in idle for total in layer.ops]
    share = evidence.share_of(ops)
    if share is None or share < WORTH_TELLING:
        return None
    is_sure = all(layer.makes_weight_gradients for layer in idle)
    return finding_on(
        evidence,
        ops,
        rule_id=ID,
        title=title,
        severity=severity_by(share) if is_sure else Severity.HINT,
        seen=seen,
        gain=_GAIN,
        trial=after_edit(evidence.subject, change),
    )


def _why(layers: Sequence[_Layer]) -> list[str]:
    forgotten = [layer for layer in layers if layer.facts.trainable]
    if not forgotten:
        return []
    return [f"parameters of {_named(forgotten)} require gradients, but no optimizer holds them"]


def _named(layers: Sequence[_Layer]) -> str:
    return listed(layer.facts.path for layer in layers)


RULE = Rule(id=ID, finds="backward of layers whose weights are not updated", find=_find)
