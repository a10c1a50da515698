"""Which ops are to blame in the example runs."""

from __future__ import annotations

from perfguard.records.facts import Fact, Value, fact
from perfguard.records.steps.ops import (
    Attribution,
    ChangeClass,
    Culprit,
    OpCountChange,
    OpDelta,
    OpKey,
    StepBalance,
    StepPhase,
)


def attribution_of(case_id: str) -> Attribution:
    """A convolution that fell back, with all six ops of the step."""
    first = "ResNet.layer3.0.conv1"
    conv = _key(StepPhase.BACKWARD, first, "aten::convolution_backward", "[8,256,14,14] [256,256,3,3]")
    reorder = _key(StepPhase.FORWARD, first, "onednn::reorder")
    other = _key(StepPhase.FORWARD, "ResNet.layer1.0.conv1", "aten::convolution")
    ops = (
        _delta(conv, ChangeClass.OTHER_IMPLEMENTATION, 18.1e-3, 20.2e-3, detail="brg_conv:avx512_core → ref:any"),
        _delta(reorder, ChangeClass.NEW, 0.0, 2.4e-4, calls=2),
        _delta(other, ChangeClass.SLOWER, 16.0e-3, 16.1e-3),
        _delta(_key(StepPhase.OPTIMIZER, "SGD", "aten::_foreach_add_"), ChangeClass.UNCHANGED, 4.2e-3, 4.2e-3),
        _delta(_key(StepPhase.LOSS, "", "aten::nll_loss_forward"), ChangeClass.UNCHANGED, 2.0e-5, 2.0e-5),
        _delta(_key(StepPhase.FORWARD, "ResNet.bn1", "aten::batch_norm"), ChangeClass.FASTER, 1.9e-3, 1.86e-3),
    )
    return Attribution(
        case_id=case_id,
        balance=StepBalance(
            baseline_s=0.041, candidate_s=0.0435, delta_s=2.5e-3, lower_s=2.1e-3, upper_s=3.0e-3, ops_s=2.4e-3,
            python_s=5e-5, idle_s=0.0, unexplained_s=5e-5, overhead_ratio=0.11,
        ),
        culprits=(
            Culprit(
                fact=_fact(
                    "implementation.changed", StepPhase.BACKWARD, "train.py:88", primitive="convolution_backward",
                    lost=("brg_conv:avx512_core",), gained=("ref:any",),
                ),
                change=ChangeClass.OTHER_IMPLEMENTATION,
                phase=StepPhase.BACKWARD,
                delta_s=2.1e-3,
                lower_s=1.8e-3,
                upper_s=2.4e-3,
                share=0.84,
                ops=(conv,),
            ),
        ),
        deltas=ops,
        op_count_changes=(
            OpCountChange(
                phase=StepPhase.BACKWARD, module="ResNet.layer3.*.conv1", rule="implementation", before=6, after=6,
                fact=_fact(
                    "implementation.changed", StepPhase.BACKWARD, primitive="convolution_backward",
                    lost=("brg_conv:avx512_core",), gained=("ref:any",),
                ),
            ),
            OpCountChange(
                phase=StepPhase.FORWARD, module="ResNet.layer3.*.conv1", rule="reorders", before=0, after=2,
                fact=_fact("reorders.added", StepPhase.FORWARD, number=2, before=0, after=2),
            ),
        ),
        processes=4,
        steps=16,
    )  # fmt: skip


def _fact(code: str, phase: StepPhase, line: str | None = None, **values: Value) -> Fact:
    return fact(code, values, op="ResNet.layer3.*.conv1", place=line, phases=(phase.value,), places=1)


def _key(phase: StepPhase, module: str, op: str, shapes: str = "[8,64,56,56]") -> OpKey:
    return OpKey(phase=phase, module=module, op=op, shapes=shapes, dtypes="bf16 bf16", layouts="channels_last")


def _delta(
    key: OpKey, change: ChangeClass, before_s: float, after_s: float, *, calls: float = 6, detail: str = ""
) -> OpDelta:
    delta_s = after_s - before_s
    return OpDelta(
        key=key,
        change=change,
        baseline_s=before_s,
        candidate_s=after_s,
        delta_s=delta_s,
        lower_s=delta_s - 5e-5,
        upper_s=delta_s + 5e-5,
        q=0.001 if abs(delta_s) > 5e-5 else 0.9,
        baseline_calls=0 if change is ChangeClass.NEW else calls,
        candidate_calls=calls,
        source="train.py:88",
        detail=detail,
    )
