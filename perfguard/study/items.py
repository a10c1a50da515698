"""What a study measures, item by item: cases, arms and the reduced sizes that keep it short.

The sizes are those of the built-in benchmarks: image sides of 224 and 256 instead of 800, one or two images, one
thread. The shapes of the paper's results are about shares and ratios, not about absolute times.
"""

from __future__ import annotations

from msgspec import Struct

PARTS = ("donuts", "phases", "kernels", "cases", "ranks")
"""In the order of measuring: what is cheap and certain first."""

MODELS = {
    "resnet18": "step.resnet18[image_size=224,batch=2,dtype=fp32,memory_format=channels_last,mode=eager]",
    "lstm": "step.lstm_lm[layers=2,hidden=256,sequence=32,batch=16,dtype=fp32,mode=eager]",
    "transformer": "step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=fp32,mode=eager]",
    "retinanet": "step.retinanet_resnext50[image_size=256,classes=91,batch=1,dtype=fp32,memory_format=channels_last,"
    "mode=eager]",
}
"""Fig. 2: the cases of its four models."""

PHASES_CASE = MODELS["retinanet"]  # Fig. 4, with few classes
FEW_CLASSES, MANY_CLASSES = 91, 264  # COCO, and the OpenImages subset of MLPerf
KERNEL_ANCHORS = 12_276  # Of an image with 256 x 256 pixels
KERNEL_VARIANTS = ("implicit", "explicit")  # Of Fig. 6, against the default
VARIANTS = ("reference", *KERNEL_VARIANTS)  # The default first
KERNELS = (
    f"kernel.focal_loss[anchors={KERNEL_ANCHORS},classes={MANY_CLASSES},dtype=*,phase=*]",
)  # Both dtypes and phases in each block, so that they are compared within it

_RETINANET = (
    "step.retinanet_resnext50[image_size=96,classes=264,batch=1,dtype=fp32,memory_format=contiguous,mode=eager]"
)
RANKS_CASE = _RETINANET  # Table 2
_RETINANET_BF16 = _RETINANET.replace("dtype=fp32", "dtype=bf16")
_ADAM = "kernel.optimizer[layers=4,algorithm=adam,dtype=fp32,mode=for-loop]"
_ALL = "dtype=bf16,memory_format=channels_last,optimizer=fused,norm=folded,focal=fused,anchors=all"


class CaseStudy(Struct, frozen=True, kw_only=True):
    """A case study of the paper that has a toggle here."""

    name: str  # The paper's row
    case: str  # Its case
    candidate: str  # Arm with the optimization
    baseline: str = "dir:."  # Arm without it


CASE_STUDIES = (
    CaseStudy(name="frozen", case=_RETINANET, baseline="set:frozen=computed", candidate="set:frozen=skipped"),
    CaseStudy(name="dtype", case=_RETINANET, candidate="set:dtype=bf16"),
    CaseStudy(name="loss", case=_RETINANET_BF16, candidate="set:loss=fp32"),
    CaseStudy(name="folded", case=_RETINANET, candidate="set:norm=folded"),
    CaseStudy(name="optimizer", case=_ADAM, candidate="set:mode=fused"),
    CaseStudy(name="layout", case=_RETINANET, candidate="set:memory_format=channels_last"),
    CaseStudy(name="overall", case=_RETINANET, candidate=f"set:{_ALL}"),
)
