"""The recipes: which toggles, in which order."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.profile.advice.toggles import Answer
from perfguard.records.machine.fingerprint import Isa


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A reference step, and what makes it faster."""

    name: str
    case_id: str  # The reference: float32, contiguous, the optimizer's loop
    toggles: tuple[Answer, ...]  # In the order in which they are added

    def prefix(self, count: int) -> tuple[Answer, ...]:
        """The first toggles."""
        return self.toggles[:count]


CHANNELS_LAST, BF16, FUSED = ("memory_format", "channels_last"), ("dtype", "bf16"), ("optimizer", "fused")

RECIPES = (
    Recipe(
        name="RetinaNet-ResNeXt50",
        case_id="step.retinanet_resnext50[image_size=256,classes=264,batch=1,dtype=fp32,memory_format=contiguous,mode=eager]",
        toggles=(CHANNELS_LAST, BF16, FUSED, ("norm", "folded"), ("focal", "fused"), ("heads", "packed")),
    ),
    Recipe(
        name="ResNet-50",
        case_id="step.resnet50[image_size=224,batch=2,dtype=fp32,memory_format=contiguous,mode=eager]",
        toggles=(CHANNELS_LAST, BF16, FUSED),
    ),
    Recipe(
        name="BERT-style encoder",
        case_id="step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=fp32,mode=eager]",
        toggles=(BF16, FUSED),
    ),
    Recipe(
        name="LSTM",
        case_id="step.lstm_lm[layers=2,hidden=256,sequence=32,batch=16,dtype=fp32,mode=eager]",
        toggles=(BF16, FUSED),
    ),
)


def target_of(isa: Isa, *, is_capped: bool) -> float:
    """How many times as fast RetinaNet's recipe should be: 4 with AMX, 2.5 with AVX-512 BF16, else 1.25."""
    if is_capped:
        return 1.25
    return 4.0 if isa.amx_bf16 else 2.5 if isa.bf16 else 1.25
