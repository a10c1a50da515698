"""Layers that do not learn: backward that nobody needs, and frozen batch norms that are written out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from perfguard.profile.advice.evidence import Evidence, tensors_of
from perfguard.profile.advice.hints import WORTH_TELLING, Hint
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, base_name, group_of
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import PYTHON_OP, OpKey, OpTotal, StepPhase
from perfguard.records.steps.program import ModuleFacts, ProgramFacts

_FOR_WEIGHTS = frozenset({"BWD_W", "BWD_DW"})
_NO_COMPUTATION = frozenset({Group.VIEWS, Group.AUTOGRAD})
_SCALE, _SHIFT = "mul", "add"
_NORM = "batch_norm"


class _Layer(Struct, frozen=True, kw_only=True):
    """A module with weights, and what it computes in backward."""

    facts: ModuleFacts
    learns: bool  # Whether its weights are updated; where no optimizer is known, whether they require gradients
    ops: Sequence[OpTotal]  # Ops of its backward
    weights_s: float  # Seconds in primitives that compute gradients of weights

    @property
    def makes_weight_gradients(self) -> bool:
        """Whether gradients of its weights are surely computed; else it may only pass on what others need."""
        return bool(self.facts.trainable or self.weights_s)


def frozen_backward(evidence: Evidence) -> Iterator[Hint]:
    """Gradients of layers that nobody uses.

    Assumes: modules are called in the order in which they are registered. Where they are not, a layer that learns may
    be called before one that seems to compute for nobody, so such findings are no more than hints.
    """
    layers = _layers(evidence, evidence.program or ProgramFacts())
    first = next((number for number, layer in enumerate(layers) if layer.learns), len(layers))
    before, after = layers[:first], layers[first:]
    # Gradients of weights that nobody updates, in layers that backward has to pass.
    idle = [layer for layer in after if layer.ops and not layer.learns and layer.makes_weight_gradients]
    weights_s = sum(layer.weights_s for layer in idle) or None
    yield _on_layers("unused_weight_gradients", idle, *_forgotten(idle), weights_s=weights_s)
    # Of several models, a frozen one may pass on the gradients of another that learns, as a discriminator does.
    if len({layer.facts.path.partition(".")[0] for layer in layers}) != 1:
        return
    # Nothing before the first layer that learns needs a gradient.
    idle = [layer for layer in before if layer.ops]
    yield _on_layers("frozen_backward", idle, *_forgotten(idle))
    # Frozen layers that are in backward only because norm layers before them, often forgotten in freezing, learn.
    others = (number for number, layer in enumerate(after) if layer.learns and "norm" not in layer.facts.kind.lower())
    first_other = next(others, None)
    if first_other is not None:  # else norms are all that is trained, on purpose
        idle = [layer for layer in after[:first_other] if layer.ops and not layer.learns]
        norms = tuple(layer.facts.path for layer in after[:first_other] if layer.learns)
        yield _on_layers("frozen_backward_for_norms", idle, fact("seen.norms", modules=norms))


def _layers(evidence: Evidence, program: ProgramFacts) -> list[_Layer]:
    """In the order of their registration."""
    ops: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        key = total.key
        if key.phase is StepPhase.BACKWARD and key.op != PYTHON_OP and group_of(key.op) not in _NO_COMPUTATION:
            ops[key.module].append(total)
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


def _on_layers(code: str, idle: Sequence[_Layer], *more: Fact, weights_s: float | None = None) -> Hint:
    modules = tuple(layer.facts.path for layer in idle)
    return Hint(
        code,
        [fact("seen.layers", layers=len(modules), modules=modules, weights_s=weights_s), *more],
        ops=[total for layer in idle for total in layer.ops],
        severity=None if all(layer.makes_weight_gradients for layer in idle) else Severity.INFO,
        least_share=WORTH_TELLING,
    )


def _forgotten(layers: Sequence[_Layer]) -> list[Fact]:
    """Layers whose parameters require gradients, though no optimizer holds them."""
    modules = tuple(layer.facts.path for layer in layers if layer.facts.trainable)
    return [fact("seen.forgotten", modules=modules)] if modules else []


def frozen_norms(evidence: Evidence) -> Iterator[Hint]:
    """Batch norms with fixed statistics that are a product and a sum, as torchvision's FrozenBatchNorm2d is.

    Each of the two reads and writes the whole tensor, forward and backward again, and nothing can be fused into the
    convolution before.
    """
    forward: dict[str, list[OpKey]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.FORWARD and total.key.op != PYTHON_OP:
            forward[total.key.module].append(total.key)
    modules = {
        module
        for module, keys in forward.items()
        if module
        and {_SCALE, _SHIFT} <= {base_name(key.op) for key in keys if _is_by_channel(key)}
        and not any(_NORM in base_name(key.op) for key in keys)
    }
    phases = {StepPhase.FORWARD, StepPhase.BACKWARD}
    concerned = [total for total in evidence.totals if total.key.module in modules and total.key.phase in phases]
    known = evidence.program.modules if evidence.program is not None else ()
    kinds = tuple(sorted({each.kind for each in known if each.path in modules}))
    seen = fact("seen.written_out", modules=len(modules), kinds=kinds, time_s=evidence.seconds_of(concerned))
    yield Hint("frozen_batch_norm", [seen], ops=concerned, least_share=WORTH_TELLING)


def _is_by_channel(key: OpKey) -> bool:
    """Whether an op combines images `[n,c,h,w]` with one value for each channel, `[1,c,1,1]` or `[c,1,1]`."""
    tensors = tensors_of(key)
    if short(key.op).rstrip("_") not in {_SCALE, _SHIFT} or len(tensors) < 2 or len(tensors[0].shape) != 4:
        return False
    images, values = tensors[:2]
    channels = images.shape[1]
    is_each = values.shape in {(1, channels, 1, 1), (channels, 1, 1)}
    return channels > 1 and is_each and images.shape != values.shape
