"""Layers that do not learn: backward that nobody needs, and frozen batch norms that are written out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING, on_ops, severity_by
from perfguard.profile.advice.tensors import tensors_of
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, base_name, group_of
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import PYTHON_OP, OpKey, OpTotal, StepPhase
from perfguard.records.steps.program import ModuleFacts, ProgramFacts

_FOR_WEIGHTS = frozenset({"BWD_W", "BWD_DW"})
_SCALE, _SHIFT = "mul", "add"
_NORM = "batch_norm"


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


def frozen_backward(evidence: Evidence) -> list[Finding]:
    """Gradients of layers that nobody uses.

    Assumes: modules are called in the order in which they are registered. Where they are not, a layer that learns may
    be called before one that is told to compute for nobody, so such findings are no more than hints.
    """
    if evidence.program is None:
        return []
    layers = _layers(evidence, evidence.program)
    first = next((number for number, layer in enumerate(layers) if layer.learns), len(layers))
    found = _of_weights(evidence, layers[first:])
    # Of several models, a frozen one may pass on the gradients of another that learns, as a discriminator does.
    if len({layer.facts.path.partition(".")[0] for layer in layers}) == 1:
        found += _for_nobody(evidence, layers[:first]) + _for_norms(evidence, layers[first:])
    return found


def _layers(evidence: Evidence, program: ProgramFacts) -> list[_Layer]:
    """In the order of their registration."""
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


def _for_nobody(evidence: Evidence, before: Sequence[_Layer]) -> list[Finding]:
    """Layers before the first one that learns: nothing before them needs a gradient, either."""
    idle = [layer for layer in before if layer.ops]
    return _on_layers(evidence, "frozen_backward", idle, _named(idle), *_forgotten(idle))


def _for_norms(evidence: Evidence, layers: Sequence[_Layer]) -> list[Finding]:
    """Frozen layers that are in backward only because norm layers before them learn."""
    first_other = next((n for n, layer in enumerate(layers) if layer.learns and not layer.is_norm), len(layers))
    if first_other == len(layers):  # norms are all that is trained, on purpose
        return []
    idle = [layer for layer in layers[:first_other] if layer.ops and not layer.learns]
    norms = tuple(layer.facts.path for layer in layers[:first_other] if layer.learns)
    seen = _named(idle), fact("seen.norms", modules=norms)
    return _on_layers(evidence, "frozen_backward_for_norms", idle, *seen)


def _of_weights(evidence: Evidence, layers: Sequence[_Layer]) -> list[Finding]:
    """Gradients of weights that nobody updates, in layers that backward has to pass."""
    idle = [layer for layer in layers if layer.ops and not layer.learns and layer.makes_weight_gradients]
    weights_s = sum(layer.weights_s for layer in idle)
    seen = _named(idle, weights_s=weights_s or None)
    return _on_layers(evidence, "unused_weight_gradients", idle, seen, *_forgotten(idle))


def _on_layers(evidence: Evidence, code: str, idle: Sequence[_Layer], *seen: Fact) -> list[Finding]:
    ops = [total for layer in idle for total in layer.ops]
    is_sure = all(layer.makes_weight_gradients for layer in idle)
    severity = severity_by(evidence.share_of(ops)) if is_sure else Severity.INFO
    return on_ops(evidence, ops, code, *seen, severity=severity, least_share=WORTH_TELLING)


def _named(layers: Sequence[_Layer], *, weights_s: float | None = None) -> Fact:
    modules = tuple(layer.facts.path for layer in layers)
    return fact("seen.layers", layers=len(modules), modules=modules, weights_s=weights_s)


def _forgotten(layers: Sequence[_Layer]) -> list[Fact]:
    """Layers whose parameters require gradients, though no optimizer holds them."""
    modules = tuple(layer.facts.path for layer in layers if layer.facts.trainable)
    return [fact("seen.forgotten", modules=modules)] if modules else []


def frozen_norms(evidence: Evidence) -> list[Finding]:
    """Batch norms with fixed statistics that are a product and a sum, as torchvision's FrozenBatchNorm2d is.

    Each of the two reads and writes the whole tensor, forward and backward again, and nothing can be fused into the
    convolution before.
    """
    forward: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.FORWARD and total.key.op != PYTHON_OP:
            forward[total.key.module].append(total)
    modules = {module for module, totals in forward.items() if module and _is_written_out(totals)}
    concerned = [
        total
        for total in evidence.totals
        if total.key.module in modules and total.key.phase in {StepPhase.FORWARD, StepPhase.BACKWARD}
    ]
    known = evidence.program.modules if evidence.program is not None else ()
    kinds = tuple(sorted({each.kind for each in known if each.path in modules}))
    seen = fact("seen.written_out", modules=len(modules), kinds=kinds, time_s=evidence.seconds_of(concerned))
    return on_ops(evidence, concerned, "frozen_batch_norm", seen, least_share=WORTH_TELLING)


def _is_written_out(totals: Sequence[OpTotal]) -> bool:
    names = {base_name(total.key.op) for total in totals}
    each_channel = {base_name(total.key.op) for total in totals if _is_by_channel(total.key)}
    return not any(_NORM in name for name in names) and {_SCALE, _SHIFT} <= each_channel


def _is_by_channel(key: OpKey) -> bool:
    """Whether an op combines images `[n,c,h,w]` with one value for each channel, `[1,c,1,1]` or `[c,1,1]`."""
    if short(key.op).rstrip("_") not in {_SCALE, _SHIFT}:
        return False
    tensors = tensors_of(key)
    if len(tensors) < 2 or len(tensors[0].shape) != 4 or tensors[0].shape[1] < 2:
        return False
    images, values = tensors[:2]
    return values.shape in {(1, images.shape[1], 1, 1), (images.shape[1], 1, 1)} and images.shape != values.shape
