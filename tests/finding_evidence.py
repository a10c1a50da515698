"""Evidence for the tests of rules: a step of 100 ms, most of it in one product that no rule has anything against."""

from __future__ import annotations

from typing import Any

from perfguard.profile.advice.advise import RULES, advise
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.gains import Gain
from perfguard.profile.advice.trials import Program
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import Cpu, Fingerprint, Isa, Limits, SoftwareFacts, State, Topology
from perfguard.records.steps.ops import (
    PYTHON_OP,
    Attribution,
    ChangeClass,
    OpCountChange,
    OpCountKind,
    OpCountRow,
    OpCounts,
    OpDelta,
    OpKey,
    OpTotal,
    PrimitiveTotal,
    StepBalance,
    StepPhase,
)
from perfguard.records.steps.program import ModuleFacts, ProgramFacts
from tests.changed_values import replace

LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = StepPhase
STEP_MS = 100.0
CASE = "step.net[dtype=fp32]"


def op(name, ms, *, calls=1.0, module="Net.body", phase=FORWARD, shapes="", dtypes="", layouts="", source=None):
    """An op; what is said of one tensor is said of all."""
    count = len(shapes.split())
    key = OpKey(
        phase=phase,
        module=module,
        op=name if "::" in name or name == PYTHON_OP else f"aten::{name}",
        shapes=shapes,
        dtypes=_for_all(dtypes or "f32", count),
        layouts=_for_all(layouts or "contiguous", count),
    )
    return OpTotal(key=key, calls=calls, self_s=ms * 1e-3, source=source)


def _for_all(words, count):
    return words if len(words.split()) == count else " ".join([words] * count)


def conv(ms=1.0, *, reads="channels_last", weights="channels_last", size=56, kernel=3, **place):
    """A convolution as the program called it."""
    shapes = f"[2,64,{size},{size}] [64,64,{kernel},{kernel}]"
    return op("convolution", ms, shapes=shapes, layouts=f"{reads} {weights}", **place)


def python(ms, **place):
    return op(PYTHON_OP, ms, **place)


def primitive(name, implementation, ms, *, calls=1.0, direction="FWD_D", memory="", problem="", **place):
    fields: dict[str, Any] = {"phase": FORWARD, "module": "Net.body", "op": "aten::convolution", **place}
    return PrimitiveTotal(
        library="onednn",
        primitive=name,
        direction=direction,
        implementation=implementation,
        memory=memory,
        problem=problem,
        calls=calls,
        time_s=ms * 1e-3,
        **fields,
    )


def reorder(ms, *, calls=1.0, **place):
    memory = "src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0"
    fields = {"memory": memory, "problem": "2x64x56x56", **place}
    return primitive("reorder", "jit:uni", ms, calls=calls, direction="", **fields)


def row(kind, name, count=1, *, detail="", module="Net.body", phase=FORWARD):
    return OpCountRow(
        kind=OpCountKind(kind), phase=phase, module=module, name=name, detail=detail, implementation="", count=count
    )


def counts(*rows):
    return OpCounts(case_id=CASE, isa_class="avx512_core", torch="2.13.0", rows=rows)


def change(rule, code, *, module="", phase=FORWARD):
    return OpCountChange(phase=phase, module=module, rule=rule, before=0, after=1, fact=fact(code))


def delta(total, *, times, kind=ChangeClass.SLOWER, detail=""):
    """An op that takes so many times as long as in the baseline."""
    return OpDelta(
        key=total.key,
        change=kind,
        baseline_s=total.self_s / times,
        candidate_s=total.self_s,
        delta_s=total.self_s * (1 - 1 / times),
        lower_s=0.0,
        upper_s=1.0,
        q=0.01,
        baseline_calls=total.calls,
        candidate_calls=total.calls,
        detail=detail,
    )


def comparison(*deltas, changes=()):
    balance = StepBalance(
        baseline_s=0.05,
        candidate_s=0.1,
        delta_s=0.05,
        lower_s=0.04,
        upper_s=0.06,
        ops_s=0.05,
        python_s=0.0,
        idle_s=0.0,
        unexplained_s=0.0,
        overhead_ratio=0.2,
        unexplained_lower_s=-0.01,
        unexplained_upper_s=0.01,
    )
    return Attribution(
        case_id=CASE,
        balance=balance,
        culprits=(),
        deltas=deltas,
        op_count_changes=tuple(changes),
        processes=4,
        steps=24,
    )


def layer(path, kind="Conv2d", *, parameters=1, learns=True, forgotten=False):
    """A module; a forgotten one requires gradients, but is in no optimizer."""
    trainable = parameters if learns or forgotten else 0
    return ModuleFacts(
        path=path, kind=kind, parameters=parameters, trainable=trainable, updated=0 if forgotten else trainable
    )


def program(*modules, optimizers=("SGD",), **more):
    return ProgramFacts(modules=modules, optimizers=optimizers, **more)


def machine(*, limits=None, **isa):
    return Fingerprint(
        machine_id="machine",
        stack_id=None,
        cpu=Cpu(),
        isa=Isa(**isa),
        topology=Topology(),
        caches=(),
        limits=limits or Limits(),
        state=State(),
    )


def software(**environment):
    return SoftwareFacts(environment=environment)


def evidence(*items, **more):
    """A step of `STEP_MS`: what is given, and a product that takes the rest."""
    totals = [item for item in items if isinstance(item, OpTotal)]
    rest_ms = STEP_MS - sum(total.self_s for total in totals) * 1e3
    shapes = "[128,768] [768,768]"
    filler = op("mm", max(0.0, rest_ms), module="Net.rest", shapes=shapes, dtypes=more.pop("rest_dtype", "f32"))
    return Evidence(
        target=more.pop("target", Program(case_id=CASE)),
        totals=(*totals, filler),
        primitives=tuple(item for item in items if isinstance(item, PrimitiveTotal)),
        **more,
    )


def elsewhere(total, module):
    return replace(total, key=replace(total.key, module=module))


def rule_of(code):
    """The rule that gives findings of a code, without its prefix."""
    (rule,) = (rule for rule in RULES if code in rule.codes)
    return rule


def all_of(rule, *items, **more):
    """What one rule finds in a step."""
    return list(advise(evidence(*items, **more), [rule_of(rule)]))


def only(rule, *items, **more):
    """The one finding of one rule in a step."""
    (finding,) = all_of(rule, *items, **more)
    return finding


def nothing(rule, *items, **more):
    """Whether a rule finds nothing in a step."""
    return all_of(rule, *items, **more) == []


def told(finding, *names):
    """Values of the evidence, or the finding's own, by name; of equal names the last."""
    known = {name: value for each in (*finding.seen, finding) for name, value in each.values.items()}
    for each in finding.seen:
        known |= {"op": each.subject.op} if each.subject.op else {}
    found = tuple(_rounded(known.get(name)) for name in names)
    return found if len(found) != 1 else found[0]


def _rounded(value):
    return round(value, 9) if isinstance(value, float) else value


def seen_codes(finding):
    return [each.code.partition(".")[2] for each in finding.seen]


def place_of(finding):
    """Phases, module, number of places, source line."""
    phases = " ".join(phase.value for phase in finding.phases)
    return phases, finding.subject.op, finding.places, finding.subject.place


def made_gain(toggle, *, speedup, case_id="step.net", machine_id="machine-a"):
    return Gain(
        toggle=toggle,
        on_top_of=(),
        case_id=case_id,
        machine_id=machine_id,
        torch="2.13.0",
        speedup=speedup,
        lower=speedup * 0.99,
        upper=speedup * 1.01,
    )
