"""The built-in benchmarks and suites: names, parameter values and where their factories are.

Imports no torch, so that listing and selecting stay cheap. Parameters stand in the order of the case id:
shape, then dtype, memory format, mode and phase. Factories may have further parameters with defaults; those
are fixed properties of the benchmark, and its one-line description names the ones that matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfguard.records.ranks import RANK_OPTIONS
from perfguard.records.spec import BenchmarkSpec, ParameterValue, Phase, SuiteSpec

_DTYPES = ("fp32", "bf16")
_OPTIMIZERS = {"optimizer": ("for-loop", "foreach", "fused")}
_FOCAL_LOSSES = ("reference", "implicit", "explicit", "fused", "compiled", "ipex_style")

Values = Sequence[ParameterValue]


def _spec(
    target: str,
    doc: str,
    phase: Phase,
    tags: tuple[str, ...],
    axes: Mapping[str, Values],
    *,
    options: Mapping[str, Values] | None = None,
    faults: Mapping[str, ParameterValue] | None = None,
) -> BenchmarkSpec:
    return BenchmarkSpec(
        name=f"{tags[0]}.{target.partition(':')[2]}",
        target=f"perfguard.benchmarks.{target}",
        parameters=tuple((key, tuple(values)) for key, values in axes.items()),
        options=tuple((key, tuple(values)) for key, values in (options or {}).items()),
        faults=tuple((faults or {}).items()),
        phase=phase,
        tags=tags,
        doc=doc,
    )


def _formats(*, image: bool) -> dict[str, Values]:
    """Images also vary their memory format."""
    return {"dtype": _DTYPES, **({"memory_format": ("contiguous", "channels_last")} if image else {})}


def _kernel(
    name: str, doc: str, *, image: bool = False, options: Mapping[str, Values] | None = None, **shape: Values
) -> BenchmarkSpec:
    """A kernel by the name of its factory."""
    phases = (Phase.FORWARD.value, Phase.FORWARD_BACKWARD.value)
    axes = {**shape, **_formats(image=image), "phase": phases}
    return _spec(f"ops:{name}", doc, Phase.FORWARD_BACKWARD, ("kernel",), axes, options=options)


def _step(
    name: str,
    doc: str,
    *,
    image: bool = False,
    modes: Values = ("eager", "compile"),
    options: Mapping[str, Values] | None = None,
    faults: Mapping[str, ParameterValue] | None = None,
    **shape: Values,
) -> BenchmarkSpec:
    """A training step by the name of its factory."""
    axes = {**shape, **_formats(image=image), "mode": modes}
    every = {**(options or {}), **RANK_OPTIONS}
    return _spec(f"steps:{name}", doc, Phase.STEP, ("step",), axes, options=every, faults=faults)


def _training(name: str, doc: str) -> BenchmarkSpec:
    """A heterogeneous training by the name of its factory."""
    algorithms = ("adaptive", "hogbatch", "additive", "cpu", "large")
    return _spec(f"hetero:{name}", doc, Phase.STEP, ("hetero",), {"algorithm": algorithms})


def _query(name: str, doc: str) -> BenchmarkSpec:
    """A query of a task by the name of its factory."""
    axes: dict[str, Values] = {
        "batch": (1, 16),
        "backend": ("eager", "compile", "onnxruntime", "openvino"),
        "dtype": (*_DTYPES, "int8"),
    }
    return _spec(f"tasks:{name}", doc, Phase.FORWARD, ("task",), axes)


BENCHMARKS: tuple[BenchmarkSpec, ...] = (
    _kernel("linear", "Linear layer 768 to 3072 on m tokens", m=(128, 512)),
    _kernel("matmul", "Product of square matrices", size=(256, 1024)),
    _kernel("bmm", "Batched products (128, 64)·(64, 128), as attention scores", batch=(24, 96)),
    _kernel("sdpa", "Attention, batch 2, 12 heads of 64",
            sequence=(128, 512), causal=(False, True)),
    _kernel("conv1x1", "1x1 convolution, channels to 4·channels, batch 4", image=True,
            channels=(64,), size=(28, 56)),
    _kernel("conv3x3", "3x3 convolution, batch 4", image=True, channels=(64,), size=(28, 56)),
    _kernel("conv_grouped", "Grouped 3x3 convolution of ResNeXt 32x4d, batch 4", image=True,
            channels=(128,), size=(28, 56)),
    _kernel("conv_depthwise", "Depthwise 3x3 convolution of MobileNet, batch 4", image=True,
            channels=(240,), size=(14, 56)),
    _kernel("batch_norm", "Batch norm with batch statistics, batch 8", image=True,
            channels=(64,), size=(28, 56)),
    _kernel("layer_norm", "Layer norm over 768 features", tokens=(128, 512, 4096)),
    _kernel("softmax", "Softmax over 4096 rows", sequence=(128, 512)),
    _kernel("gelu", "GELU on 3072 features", tokens=(128, 512)),
    _kernel("embedding_bag", "Embedding bag, 20 lookups of 64 features, sparse gradient",
            bags=(2048,), rows=(10_000, 1_000_000)),
    _kernel("cross_entropy", "Cross-entropy of logits against labels",
            rows=(512,), classes=(1000, 30_522)),
    _kernel("focal_loss", "Sigmoid focal loss of RetinaNet, reference form",
            anchors=(3_069, 12_276), classes=(91, 264), options={"variant": _FOCAL_LOSSES}),
    _kernel("lstm", "One LSTM layer, batch 16", hidden=(256, 512), sequence=(32,)),
    _kernel("cat", "Concatenation of four tensors of 256 features", rows=(512, 4096)),
    _kernel("copy", "Copy of 1024 features", rows=(512, 4096)),
    _kernel("transpose", "Strided copy of 1024 features", rows=(512, 4096)),
    _spec("ops:optimizer", "Optimizer update of transformer encoder layers of width 256, fixed gradients",
          Phase.OPTIMIZER, ("kernel", "optimizer"),
          {"layers": (4,), "algorithm": ("sgd", "adam", "adamw", "adagrad"), "dtype": _DTYPES,
           "mode": ("for-loop", "foreach", "fused")}),
    # Eager only: compiled, ResNet-50 stands for it.
    _step("resnet18", "ResNet-18, SGD with momentum", image=True, modes=("eager",),
          image_size=(64, 224), batch=(2,), options=_OPTIMIZERS),
    _step("resnet50", "ResNet-50, SGD with momentum", image=True,
          image_size=(64, 224), batch=(2,), options=_OPTIMIZERS),
    _step("retinanet_resnext50", "RetinaNet-ResNeXt50 of MLCommons training, Adam", image=True,
          image_size=(96, 256), classes=(91, 264), batch=(1,),
          options={**_OPTIMIZERS, "norm": ("module", "folded"), "frozen": ("skipped", "computed"),
                   "focal": _FOCAL_LOSSES, "anchors": ("counted", "all"), "loss": ("autocast", "fp32"),
                   "heads": ("levels", "packed")},
          faults={"frozen": "computed"}),
    _step("bert", "BERT-style encoder, masked language model, AdamW",
          layers=(2,), hidden=(128, 256, 768), sequence=(128,), batch=(4,), options=_OPTIMIZERS),
    _step("dlrm", "DLRM-style recommender, 26 tables, SGD on sparse gradients",
          batch=(256, 2048), rows=(10_000,)),
    # Dynamo does not trace nn.LSTM by default: compiled, this step would run eagerly.
    _step("lstm_lm", "LSTM language model, SGD with clipped gradients", modes=("eager",),
          layers=(2,), hidden=(128, 256), sequence=(32,), batch=(16,), options=_OPTIMIZERS),
    _step("mobilenetv3", "MobileNetV3, RMSprop", image=True,
          variant=("small", "large"), image_size=(96, 224), batch=(4,),
          options={"optimizer": ("for-loop", "foreach")}),
    _training("covtype", "Time to loss of Hogbatch workers: dense rows, 7 classes"),
    _training("w8a", "Time to loss of Hogbatch workers: sparse rows, 2 classes"),
    _query("digits", "Query of the task digits: latency with batch 1, throughput with 16"),
    _query("ssd_mobilenetv2", "Query of the task ssd-mobilenetv2, whose weights `perfguard task fetch` gets"),
)  # fmt: skip
"""All built-in benchmarks, kernels first."""

_PR_GATING = (
    "step.retinanet_resnext50[image_size=96,classes=91,batch=1,dtype=fp32,memory_format=channels_last,mode=eager]",
    "step.resnet50[image_size=64,batch=2,dtype=bf16,memory_format=channels_last,mode=eager]",
    "step.mobilenetv3[variant=large,image_size=96,batch=4,dtype=fp32,memory_format=channels_last,mode=eager]",
    "step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=bf16,mode=eager]",
    "step.dlrm[batch=256,rows=10000,dtype=fp32,mode=eager]",
    "step.lstm_lm[layers=2,hidden=256,sequence=32,batch=16,dtype=fp32,mode=eager]",
    "kernel.linear[m=128,dtype=bf16,phase=forward+backward]",
    "kernel.sdpa[sequence=128,causal=false,dtype=bf16,phase=forward+backward]",
    "kernel.conv_grouped[channels=128,size=28,dtype=fp32,memory_format=channels_last,phase=forward+backward]",
    "kernel.layer_norm[tokens=128,dtype=fp32,phase=forward+backward]",
    "kernel.embedding_bag[bags=2048,rows=10000,dtype=fp32,phase=forward+backward]",
    "kernel.optimizer[layers=4,algorithm=adam,dtype=fp32,mode=fused]",
)

_PR_COMPILED = tuple(
    case_id.replace("mode=eager", "mode=compile")
    for case_id in _PR_GATING
    if "mode=eager" in case_id and not case_id.startswith("step.lstm_lm")
)

SUITES: tuple[SuiteSpec, ...] = (
    SuiteSpec(
        name="quick",
        doc="Six short cases, for a first look",
        gating=(
            "kernel.linear[m=128,dtype=bf16,phase=forward+backward]",
            "kernel.layer_norm[tokens=128,dtype=fp32,phase=forward+backward]",
            "kernel.sdpa[sequence=128,causal=false,dtype=fp32,phase=forward+backward]",
            "kernel.conv3x3[channels=64,size=28,dtype=fp32,memory_format=channels_last,phase=forward+backward]",
            "step.mobilenetv3[variant=small,image_size=96,batch=4,dtype=fp32,memory_format=channels_last,mode=eager]",
            "step.bert[layers=2,hidden=128,sequence=128,batch=4,dtype=bf16,mode=eager]",
        ),
        budget_s=165.0,
    ),
    SuiteSpec(
        name="pr",
        doc="Twelve gating cases for a pull request: six training steps and six kernels",
        gating=_PR_GATING,
        budget_s=585.0,
    ),
    SuiteSpec(
        name="hetero",
        doc="Heterogeneous training to a target loss; wants two CPUs at least (`--threads 2`)",
        gating=("hetero.covtype[algorithm=adaptive]", "hetero.w8a[algorithm=adaptive]"),
        budget_s=300.0,
    ),
    SuiteSpec(
        name="tasks",
        doc="Queries of the task digits, whose quality must reach its target; wants perfguard[tasks,onnxruntime]",
        gating=(
            "task.digits[batch=1,backend=eager,dtype=fp32]",
            "task.digits[batch=16,backend=eager,dtype=fp32]",
            "task.digits[batch=1,backend=onnxruntime,dtype=int8]",
        ),
        budget_s=150.0,
    ),
    SuiteSpec(
        name="full",
        doc="All kernels, all eager steps and the steps of `pr` compiled; only the cases of `pr` gate",
        gating=_PR_GATING,
        # Each compiled case costs up to a minute of set-up in every process, hence one a step.
        advisory=("kernel.*", "step.*mode=eager]", *_PR_COMPILED),
        budget_s=8 * 3600.0,
    ),
)
"""All built-in suites, shortest first."""
